"""What is asked of the NVIDIA driver in a process of its own, because it may hang or spoil the process it runs in.

Run as a script: `open PATH`, `libraries`, `cuda`, `bind`, `limits` or `processes`. It prints one JSON value.
Standard library only.
"""

import ctypes
import errno
import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


def main(arguments: list[str]) -> int:
    """Answer one question."""
    answers: dict[str, Any] = {
        "open": lambda: open_device(arguments[1]),
        "libraries": libraries,
        "cuda": start_cuda,
        "bind": bind_memory,
        "limits": limits,
        "processes": processes,
    }
    sys.stdout.write(json.dumps(answers[arguments[0]]()) + "\n")
    return 0


def open_device(path: str) -> dict[str, Any]:
    """Open a device for reading and writing and close it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        return {"error": errno.errorcode.get(problem.errno or 0, str(problem.errno))}
    return {"error": None}


def libraries() -> dict[str, Any]:
    """The files that the loader takes for the driver's libraries, or its complaint."""
    answer: dict[str, Any] = {}
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError as problem:
            answer[name] = {"file": None, "error": str(problem)}
        else:
            answer[name] = {"file": _loaded_file(name), "error": None}
    return answer


def start_cuda() -> dict[str, Any]:
    """`cuInit` and the number of devices; no context, so no memory of a GPU is taken."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        return {"library": None, "error": str(problem)}
    code = int(cuda.cuInit(0))
    answer: dict[str, Any] = {"library": _loaded_file("libcuda.so.1"), "init": code, "name": _error_name(cuda, code)}
    if code == 0:
        count = ctypes.c_int(0)
        answer["count_code"] = int(cuda.cuDeviceGetCount(ctypes.byref(count)))
        answer["count"] = count.value
    return answer


_SET_MEMPOLICY, _MPOL_BIND = 238, 2
"""Number of the system call on x86-64, and the policy."""


def bind_memory() -> str | None:
    """Bind this process's memory to node 0; the symbol of the error, or None."""
    if os.uname().machine != "x86_64":
        return None
    mask = ctypes.c_ulong(1)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SET_MEMPOLICY, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(64)) == 0:
        return None
    return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def limits() -> dict[str, int]:
    """Soft limits that servers inherit; -1 is none."""
    names = {"files": resource.RLIMIT_NOFILE, "locked memory": resource.RLIMIT_MEMLOCK, "cores": resource.RLIMIT_CORE}
    return {name: resource.getrlimit(which)[0] for name, which in names.items()}


_SERVER = re.compile(r"sglang(::|\.launch_server)|vllm( serve|\.entrypoints|::)|\bllama-server\b")
_LOOK_AGAIN = 1.0
"""Seconds between two looks at a process in state D: a moment there is normal."""


def processes() -> dict[str, Any]:
    """Processes that stay in state D, and servers whose parent has ended. What cannot be read is left out."""
    first = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    waiting = [pid for pid, stat in first.items() if stat[0] == "D"]
    if waiting:
        time.sleep(_LOOK_AGAIN)
    stuck = []
    for pid in waiting:
        again = _stat(pid)
        if again is not None and again[0] == "D":
            where = _read(f"/proc/{pid}/wchan") + " " + _read(f"/proc/{pid}/stack")
            driver = bool(re.search(r"\b(_?nv|uvm|os_acquire|rm_)", where)) or _holds_gpu(pid)
            stuck.append({"pid": pid, "command": _command(pid), "where": where.strip()[:200], "driver": driver})
    servers = [
        {"pid": pid, "parent": parent, "command": _command(pid)[:200]}
        for pid, (_, parent) in first.items()
        if parent == 1 and _SERVER.search(_command(pid))
    ]
    return {"looked": len(first), "stuck": stuck, "servers": servers}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # names, not paths


def _stat(pid: int) -> tuple[str, int] | None:
    """State and parent."""
    words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (words[0], int(words[1])) if len(words) > 1 else None


def _command(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def _holds_gpu(pid: int) -> bool:
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  # names, not paths
        return any(os.readlink(f"/proc/{pid}/fd/{name}").startswith("/dev/nvidia") for name in names)  # noqa: PTH115  # as above
    except OSError:
        return False


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _loaded_file(name: str) -> str | None:
    stem = name.partition(".so")[0] + ".so"
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if stem in path:
            return os.path.realpath("/" + path)
    return None


def _error_name(cuda: ctypes.CDLL, code: int) -> str:
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"").decode("ascii", "replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
