"""What is asked of the NVIDIA driver in a process of its own, because it may hang or spoil the process it runs in.

Run as a script: `open PATH`, `libraries` or `cuda`. It prints one JSON object. Standard library only.
"""

import ctypes
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


def main(arguments: list[str]) -> int:
    """Answer one question."""
    answers: dict[str, Any] = {
        "open": lambda: open_device(arguments[1]),
        "libraries": libraries,
        "cuda": start_cuda,
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
