"""A disk that kills its process, or fails, at a chosen operation: put in the place of ddconsole's own.

As a program it runs the agent or a runner on such a disk: `failing_disk.py MODULE ARGUMENTS` with the rule, JSON, in
the environment variable `FAILING_DISK`.

A rule fires once for all processes that it is given to: `fired` is a file that is made when it fires. Operations that
match are counted in the file `count`, so that a rule can name the n-th of a whole run, whoever does it.
"""

import json
import os
import runpy
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from ddconsole.runner.disk import PLACE, Disk

WHERE = ("before", "torn", "written", "synced")
"""Moments of an append at which its process can be killed: before it, after half of it, before and after its sync."""
ENVIRONMENT = "FAILING_DISK"


@dataclass(frozen=True, slots=True)
class Rule:
    """What goes wrong, and at which operation."""

    folder: str
    """Where the counts of this rule are kept."""
    file: str = "*"
    """Name of the file, as a pattern; temp files count as the file that they become."""
    where: str = "before"
    """One of `WHERE`, or `renamed`, `rename`; for errors: `open`, `write`, `short`, `sync`, `rename`."""
    number: int = 1
    """The n-th append (or replacement) of such a file."""
    error: int = 0
    """errno instead of a kill: from when `folder/armed` is there until `folder/mended` is."""
    modes: tuple[str, ...] = ()
    """A chain: the n-th append is killed in the n-th of these modes, round and round, each number once."""
    stride: int = 1
    """Of a chain: kill at every stride-th append."""
    containing: str = ""
    """Only appends with this text are counted."""


class FailingDisk(Disk):
    """ddconsole's disk with a rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._folder = Path(rule.folder)
        self._now = ""
        """The mode of the append that is going on, if it is to be killed."""
        self._half_written = False

    # --- which operation this is

    def _matches(self, path: Path) -> bool:
        name = path.name
        if name.startswith(".") and name.endswith(".part"):
            name = name[1:].rsplit(".", 2)[0]
        return fnmatch(name, self._rule.file)

    def _counted(self) -> int:
        """The number of this append, over all processes: one byte of a file for each."""
        with (self._folder / "count").open("ab", buffering=0) as file:
            file.write(b".")
            return file.tell()

    def _begin(self) -> None:
        number = self._counted()
        if self._rule.modes:
            if number % self._rule.stride == 0:
                self._now = self._rule.modes[(number // self._rule.stride) % len(self._rule.modes)]
        elif number == self._rule.number:
            self._now = self._rule.where

    def _die_if(self, where: str) -> None:
        if self._now == where:
            with (self._folder / "fired").open("a") as file:
                file.write(f"{where}\n")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def _fail_if(self, where: str, path: Path) -> None:
        rule = self._rule
        if rule.error and rule.where == where and self._matches(path) and self._failing():
            self._fail(where, path)

    def _failing(self) -> bool:
        return (self._folder / "armed").exists() and not (self._folder / "mended").exists()

    def _fail(self, where: str, path: Path) -> None:
        with (self._folder / "fired").open("a") as file:
            file.write(f"{where} {path.name}\n")
        raise OSError(self._rule.error, os.strerror(self._rule.error), str(path))

    # --- the operations

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        self._fail_if("open", path)
        return super().open(path, flags, mode)

    def write(self, descriptor: int, data: memoryview, path: Path) -> int:
        self._fail_if("write", path)
        if self._rule.where == "short" and self._matches(path) and self._failing():
            if len(data) > 1 and not self._half_written:
                self._half_written = True
                return super().write(descriptor, data[: len(data) // 2], path)
            self._half_written = False
            self._fail("short", path)
        if not self._rule.error and self._matches(path) and self._rule.containing.encode() in bytes(data):
            self._begin()
            self._die_if("before")
            if self._now == "torn":
                os.write(descriptor, data[: len(data) // 2])
            self._die_if("torn")
        written = super().write(descriptor, data, path)
        self._die_if("written")
        return written

    def sync(self, descriptor: int, path: Path) -> None:
        self._fail_if("sync", path)
        super().sync(descriptor, path)
        if self._matches(path):
            self._die_if("synced")

    def rename(self, source: Path, target: Path) -> None:
        self._fail_if("rename", target)
        if self._matches(target):
            self._die_if("rename")
        super().rename(source, target)
        if self._matches(target):
            self._die_if("renamed")
            self._now = ""


def environment(rule: Rule) -> dict[str, str]:
    """What a process must find in its environment."""
    return {ENVIRONMENT: json.dumps(asdict(rule))}


def arm(rule: Rule) -> None:
    """From now on what the rule names fails."""
    (Path(rule.folder) / "armed").touch()


def mend(rule: Rule) -> None:
    """From now on nothing fails any more."""
    (Path(rule.folder) / "mended").touch()


def fired(rule: Rule) -> list[str]:
    """Where it fired."""
    try:
        return (Path(rule.folder) / "fired").read_text().splitlines()
    except FileNotFoundError:
        return []


def counted(rule: Rule) -> int:
    """Appends and replacements so far."""
    try:
        return (Path(rule.folder) / "count").stat().st_size
    except FileNotFoundError:
        return 0


def install() -> None:
    """Put a failing disk in the place of this process's own, if the environment says so."""
    said = os.environ.get(ENVIRONMENT)
    if said:
        rule = Rule(**json.loads(said))
        PLACE.disk = FailingDisk(replace(rule, modes=tuple(rule.modes)))


if __name__ == "__main__":
    install()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
