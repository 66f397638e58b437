"""What is done on the agent's machine to start it: this file's text is sent to the host's Python, so it stands alone.

It needs Python 3.11 and nothing else, imports nothing of ours, and is run as `python -I -` with itself on stdin and one
call of `main` behind it: over SSH, and on the console's own machine too.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

LONGEST_SOCKET_PATH = 107
"""Bytes: `sun_path` holds 108 with the closing zero."""
_LOG_TAIL = 4096
_YOUNG = 3600.0
"""Seconds."""


class RefusedError(Exception):
    """A place cannot be trusted or used: what is wrong and where, and what helps."""

    def __init__(self, text: str, do: str) -> None:
        super().__init__(text)
        self.text = text
        self.do = do


# --- the socket ------------------------------------------------------------------------------------------------


def socket_path(state: str, uid: int, base: str = "/tmp") -> str:  # noqa: S108  # checked, see `safe_folder`
    """Where the agent of a state directory listens.

    Raises:
        RefusedError: E131, the path is longer than a socket's may be.
    """
    digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    path = f"{base}/ddconsole-{uid}/{digest}/agent.sock"
    length = len(os.fsencode(path))
    if length > LONGEST_SOCKET_PATH:
        raise RefusedError(
            f"E131 the socket path {path} is {length} bytes, the limit is {LONGEST_SOCKET_PATH}", "use a shorter folder"
        )
    return path


def make_socket_folder(path: str) -> None:
    """Make the socket's two folders, 0700, and check what is there.

    Raises:
        RefusedError: E130, one of them is a link, belongs to somebody else or is open to others.
    """
    folder = Path(path).parent
    for one in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            one.mkdir(mode=0o700)
        safe_folder(one)
    for name in (Path(path).name, Path(path).name + ".lock"):
        _safe_file(folder / name)


def safe_folder(folder: Path) -> None:
    """Check that a folder is one, ours, and closed to others.

    Raises:
        RefusedError: E130.
        FileNotFoundError: it is not there.
    """
    about = folder.lstat()
    if stat.S_ISLNK(about.st_mode):
        raise _refuse(folder, "is a symbolic link")
    if not stat.S_ISDIR(about.st_mode):
        raise _refuse(folder, "is no folder")
    if about.st_uid != os.geteuid():
        raise _refuse(folder, f"is owned by uid {about.st_uid}, not by uid {os.geteuid()}")
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise _refuse(folder, f"has mode {stat.S_IMODE(about.st_mode):04o}, others may enter")


def _safe_file(path: Path) -> None:
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    if path.suffix == ".lock" and not stat.S_ISREG(about.st_mode):
        raise _refuse(path, "is no plain file")
    if path.suffix != ".lock" and not stat.S_ISSOCK(about.st_mode):
        raise _refuse(path, "is no socket")
    if about.st_uid != os.geteuid():
        raise _refuse(path, f"is owned by uid {about.st_uid}, not by uid {os.geteuid()}")


def _refuse(path: Path, what: str) -> RefusedError:
    return RefusedError(f"E130 {path} {what}", f"find out who made it (ls -ld {path}), then remove it")


def answers(path: str, timeout: float = 2.0) -> bool:
    """Whether somebody accepts connections at the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def lock_holder(path: str) -> int | None:
    """The pid that holds the agent's lock, None when nobody does. Asks the kernel's list: trying would disturb.

    Where something deleted the file, an agent still has it open: it makes it anew, and its socket, within seconds.
    """
    try:
        inode = Path(path + ".lock").stat().st_ino
        held = Path("/proc/locks").read_text()
    except OSError:
        return _holder_of_deleted(path + ".lock")
    found = re.search(rf"FLOCK +ADVISORY +WRITE +(\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", held)
    return int(found.group(1)) if found else _holder_of_deleted(path + ".lock")


def _holder_of_deleted(lock: str) -> int | None:
    """The process of ours that keeps a file open which was deleted under it."""
    for process in Path("/proc").glob("[0-9]*"):
        if f"{lock} (deleted)" in _open_files(process):
            return int(process.name)
    return None


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(one.readlink())


# --- starting --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentStart:
    """How the agent is started."""

    command: Sequence[str]
    state: str
    socket: str
    log: str
    environment: Mapping[str, str]
    bundle: str = ""
    """The bundle's folder where the agent is started from one; it is made an environment of `python`."""
    python: str = ""


def start_agent(**arguments: Any) -> int:
    """Start the agent in a session of its own, with nothing of ours open; its pid. One that is there is left alone.

    Raises:
        RefusedError: E130 as above, or the program cannot be executed, or a folder cannot be made.
    """
    start = AgentStart(**arguments)
    make_socket_folder(start.socket)
    holder = lock_holder(start.socket)
    if holder is not None:
        return holder
    if start.bundle:
        _make_environment(Path(start.bundle), start.python)
    try:
        Path(start.state).mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise RefusedError(f"{start.state}: {problem.strerror}", _advice(problem)) from problem
    argv = [*start.command, "--state", start.state, "--socket", start.socket]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            cwd="/",
            env={**os.environ, **start.environment},
        )
    except OSError as problem:
        raise RefusedError(f"{argv[0]}: {problem.strerror}", "check that it exists and may be executed") from problem
    finally:
        os.close(descriptor)
    return process.pid


def log_tail(log: str) -> str:
    """The last lines of the agent's log."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


# --- the bundle ------------------------------------------------------------------------------------------------


def receive_bundle(part: str, folder: str, size: int, sha256: str) -> None:
    """Check an uploaded archive, unpack it beside `folder`, and rename it.

    Raises:
        RefusedError: it is not what was sent, or holds what no bundle of ours holds, or the disk is full.
    """
    archive, target = Path(part), Path(folder)
    fresh = archive.with_suffix(".tmp")
    try:
        _check(archive, size, sha256)
        if not target.is_dir():
            _unpack(archive, fresh)
            # Another console may have been faster: its folder has the same content.
            with contextlib.suppress(FileExistsError):
                fresh.rename(target)
    except OSError as problem:
        if not target.is_dir():
            raise RefusedError(f"{folder}: {problem.strerror or problem}", _advice(problem)) from problem
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)


def _check(archive: Path, size: int, sha256: str) -> None:
    found = archive.stat().st_size
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if (found, digest) != (size, sha256):
        raise RefusedError(
            f"{archive} holds {found} of {size} bytes, sha256 {digest[:12]} instead of {sha256[:12]}", "try again"
        )


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts:
                raise RefusedError(f"E301 the archive member {member.name!r} has no place in a bundle", "report this")
            content = tar.extractfile(member)
            assert content is not None
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _make_environment(folder: Path, python: str) -> None:
    """`bin/python` and `pyvenv.cfg`: with them the agent and its children find the bundle without any variable."""
    interpreter = folder / "bin" / "python"
    if interpreter.exists() and interpreter.resolve() == Path(python).resolve():
        return
    interpreter.parent.mkdir(exist_ok=True)
    interpreter.unlink(missing_ok=True)
    interpreter.symlink_to(python)
    home = Path(python).resolve().parent
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")


def verify_bundle(folder: str) -> str:
    """The name that the content of a bundle's folder gives: the folder's own, unless somebody changed it."""
    root = Path(folder)
    found = {path.relative_to(root).as_posix(): path for path in (root / "lib").rglob("*") if path.is_file()}
    digest = hashlib.sha256()
    for name in sorted(name for name in found if "/__pycache__/" not in name):
        digest.update(name.encode() + b"\0" + hashlib.sha256(found[name].read_bytes()).digest())
    return digest.hexdigest()[:16]


def place_of(folder: str) -> dict[str, Any]:
    """The disk on which a folder is or would be made: what decides whether an agent can live there."""
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    about = os.statvfs(place)
    return {
        "place": str(place),
        "free": about.f_bavail * about.f_frsize,
        "readonly": bool(about.f_flag & os.ST_RDONLY),
        "noexec": bool(about.f_flag & os.ST_NOEXEC),
        "writable": os.access(place, os.W_OK | os.X_OK),
    }


def clear_bundles(agents: str, keep: str) -> list[str]:
    """Remove bundle folders from which no process runs, and what broken uploads left; their names.

    Young ones stay: another console may be about to start from them.
    """
    removed: list[str] = []
    in_use = "\0".join(_command_lines())
    for one in Path(agents).iterdir():
        if one.name == keep or f"{one}/" in in_use or time.time() - one.lstat().st_mtime < _YOUNG:
            continue
        if re.fullmatch(r"[0-9a-f]{16}", one.name) or one.suffix == ".tmp":
            shutil.rmtree(one, ignore_errors=True)
        elif one.suffix == ".part":
            one.unlink(missing_ok=True)
        else:
            continue
        removed.append(one.name)
    return sorted(removed)


def _command_lines() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "cmdline").read_bytes().decode(errors="surrogateescape")


# --- being called ----------------------------------------------------------------------------------------------


def look(state: str, folder: str = "", pid: int = 0, log: str = "") -> dict[str, Any]:
    """What is there.

    The socket, whether somebody answers at it, who holds its lock, whether the bundle is there and on what kind of
    disk, and of the agent that was just started: whether it lives, and the end of its log.
    """
    path = socket_path(state, os.geteuid())
    with contextlib.suppress(FileNotFoundError):
        safe_folder(Path(path).parent.parent)
        safe_folder(Path(path).parent)
    return {
        "socket": path,
        "answers": answers(path),
        "lock": lock_holder(path),
        "bundle": bool(folder) and Path(folder).is_dir(),
        "place": place_of(folder or state),
        "alive": bool(pid) and Path(f"/proc/{pid}").exists(),
        "log": log_tail(log) if log else "",
    }


def _advice(problem: OSError) -> str:
    full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    return "make room there" if full else "make it writable, or name another folder in the plan: agent: {state: ...}"


ACTIONS: dict[str, Callable[..., Any]] = {
    "look": look,
    "start": start_agent,
    "receive": receive_bundle,
    "clear": clear_bundles,
    "verify": verify_bundle,
}


def main(nonce: str, action: str, arguments: dict[str, Any]) -> None:
    """Do one action and print one line that begins with `nonce`, whatever else a login shell printed."""
    try:
        answer = {"ok": ACTIONS[action](**arguments)}
    except RefusedError as refused:
        answer = {"error": refused.text, "do": refused.do}
    except OSError as problem:
        answer = {"error": f"{problem.filename or action}: {problem.strerror or problem}", "do": _advice(problem)}
    sys.stdout.write(f"\n{nonce} {json.dumps(answer)}\n")
