"""SGLang's log: its prefix, its streams. One write a record, so that processes never tear each other's lines."""

import os
import time
from dataclasses import dataclass

from ddconsole.core.clock import Clock

_STDOUT, _STDERR = 1, 2


@dataclass(frozen=True, slots=True)
class Log:
    """Writes records with SGLang's prefix. `rank` is ` TP3`, or empty with one GPU."""

    clock: Clock
    rank: str = ""

    def line(self, text: str) -> None:
        """A record on the standard error stream."""
        self.raw(f"{self._prefix()} {text}\n")

    def access(self, text: str) -> None:
        """A record of the HTTP server's access log, which goes to the standard output stream."""
        _write(_STDOUT, f"{self._prefix(ranked=False)} INFO:     {text}\n")

    def raw(self, text: str) -> None:
        """Bytes as they are: tracebacks and progress bars."""
        _write(_STDERR, text)

    def progress(self, what: str, done: int, of: int, seconds: float) -> None:
        r"""One state of a tqdm bar: it begins with `\r` and ends without a newline."""
        share = done / of
        bar = ("█" * round(10 * share)).ljust(10)
        rate = f"{done / seconds:5.2f}it/s" if done and seconds > 0 else "?it/s"
        left = seconds / done * (of - done) if done else 0.0
        times = f"{_minutes(seconds)}<{_minutes(left) if done else '?'}"
        self.raw(f"\r{what}: {round(100 * share):3d}%|{bar}| {done}/{of} [{times}, {rate}]")

    def shards(self, done: int, of: int, seconds: float) -> None:
        r"""One state of the weight loader's bar."""
        rate = f"{done / seconds:5.2f}it/s" if done and seconds > 0 else "?it/s"
        left = _minutes(seconds / done * (of - done)) if done else "?"
        share = f"{round(100 * done / of):3d}% Completed | {done}/{of} [{_minutes(seconds)}<{left}, {rate}]"
        self.raw(f"\rLoading safetensors checkpoint shards: {share}")

    def _prefix(self, ranked: bool = True) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.clock.now()))
        return f"[{stamp}{self.rank if ranked else ''}]"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _write(stream: int, text: str) -> None:
    os.write(stream, text.encode("utf-8", "replace"))
