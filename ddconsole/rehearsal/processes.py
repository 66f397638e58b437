"""Child processes that look like SGLang's: forked, retitled, and gone when their parent is."""

import ctypes
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_TITLE_PADDING = 100
"""setproctitle fills the old command line with blanks (seen: about a hundred)."""


@dataclass(slots=True)
class Child:
    """A child process and the socket to it. `name` is SGLang's own for it in its log."""

    name: str
    pid: int
    link: socket.socket
    exit_code: int | None = None
    """Set once it was waited for."""


def fork_child(name: str, work: Callable[[socket.socket], None], strangers: Sequence[Child]) -> Child:
    """Fork a process that runs `work` and then ends; it dies with this one.

    A fork and not a new interpreter: a rehearsal with eight ranks starts ten processes on a small machine.

    Args:
        name: SGLang's name for it.
        work: what it does, given its end of the socket.
        strangers: children forked before, whose sockets the new one must not keep open.
    """
    here, there = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        there.close()
        here.setblocking(False)
        return Child(name, pid, here)
    status = 1
    try:
        here.close()
        for child in strangers:
            child.link.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            work(there)
        status = 0
    except Exception:  # noqa: BLE001  # nothing above a forked child may run: its traceback goes to the log
        traceback.print_exc()
    finally:
        os._exit(status)


def retitle(title: str) -> None:
    """Show `title` as this process's name and command line, and wipe its environment as setproctitle does."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title.rsplit("/", 1)[-1].encode()[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end, environment_start, environment_end = (int(field) for field in fields[45:49])
    room = end - start - 1  # the last byte stays NUL: else the kernel reads on into the environment
    if start == 0 or room < 1:
        return
    text = title.encode()[:room].ljust(min(room, len(title) + _TITLE_PADDING), b" ")
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    if environment_start and environment_end > environment_start:
        ctypes.memset(environment_start, 0, environment_end - environment_start)


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    stat = _stat(pid)
    return int(stat[19]) if stat and stat[0] not in "ZX" else None


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to processes of ours; those that are gone already are no error."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether somebody froze the process (SIGSTOP)."""
    stat = _stat(pid)
    return bool(stat) and stat[0] == "T"


def wait_for_word(link: socket.socket, seconds: float) -> bytes | None:
    """What the other side says within `seconds` of real time; empty when it is gone, None when it says nothing."""
    readable, _, _ = select.select([link], [], [], max(seconds, 0.0))
    return link.recv(64) if readable else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
