"""Programs that bring a model: the operator's command, or what fetches `host:folder` over SSH and resumes."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddconsole.agent.stage_copy import StageProblem
from ddconsole.core.visible_text import visible_line

_GRACE = 5.0
"""Seconds between the two signals that end a program."""
_ASKING = 30.0
"""Seconds for one question to the host that has the model."""
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_PART = ".ddconsole-part"
"""Folder of what is not whole yet: hidden files are no part of a model."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What to start, and where what it brings appears."""

    argv: tuple[str, ...]
    to: Path
    expected: int = 0
    """Bytes; 0 where nobody knows."""
    part: Path | None = None
    """A folder whose one entry is put in the place of `to` when it is whole."""


def operators_fetch(path: str, argv: Sequence[str], expected: int) -> Fetch:
    """The operator's command, with `{to}` filled in."""
    return Fetch(tuple(word.replace("{to}", path) for word in argv), Path(path), expected)


async def ssh_fetch(path: str, source: str) -> Fetch:
    """How `host:folder` is fetched: by rsync where both sides have it, else by sftp. Both go on where they were.

    Raises:
        StageProblem: the host cannot be asked without a password, or has no such folder.
    """
    to = Path(path)
    host, _, folder = source.partition(":")
    if not host or host.startswith("-"):
        raise StageProblem(f"{source} names no host", "correct the plan's `model: source:`")
    origin = f"{folder.rstrip('/') or '/'}"
    named = f"{origin.rstrip('/')}/{to.name}"
    inside = await _ask(host, "test", "-e", named) == (0, "")
    origin = named if inside else origin
    status, out = await _ask(host, "du", "-sbL", origin)
    if status != 0 or not out.split()[:1] or not out.split()[0].isdigit():
        raise StageProblem(f"{host} has no {origin} that can be read: {out}", "correct the plan's `model: source:`")
    expected = int(out.split()[0])
    whole_folder = (await _ask(host, "test", "-d", origin))[0] == 0
    to.parent.mkdir(parents=True, exist_ok=True)
    if shutil.which("rsync") and (await _ask(host, "rsync", "--version"))[0] == 0:
        kept = ("--recursive", "--times", "--copy-links", f"--partial-dir={_PART}", "--protect-args")
        end = "/" if whole_folder else ""
        rsync = ("rsync", *kept, f"--rsh={shlex.join(_SSH)}", f"{host}:{origin}{end}", f"{to}{end}")
        return Fetch(rsync, to, expected)
    part = to.with_name(f".{to.name}{_PART}")
    part.mkdir(exist_ok=True)
    # `-S ssh` takes the one on the path, as everything else here does; `-a` goes on with what is there.
    argv = ("sftp", "-q", "-S", "ssh", "-o", "BatchMode=yes", "-r", "-a", "-p", f"{host}:{origin}", f"{part}/")
    return Fetch(argv, to, expected, part)


async def begin_fetch(fetch: Fetch) -> asyncio.subprocess.Process:
    """Start the program in a session of its own.

    Raises:
        StageProblem: it cannot be started.
    """
    fetch.to.parent.mkdir(parents=True, exist_ok=True)
    try:
        return await asyncio.create_subprocess_exec(
            *fetch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "DDCONSOLE_STAGE_TO": str(fetch.to)},
            start_new_session=True,
        )
    except OSError as problem:
        raise StageProblem(f"{fetch.argv[0]}: {problem.strerror or problem}", "correct the plan's source") from problem


def put_in_place(fetch: Fetch) -> None:
    """Move what came whole into its place, file by file; what stands there already is replaced."""
    if fetch.part is None:
        return
    brought = next(iter(fetch.part.iterdir()), None)
    if brought is None:
        raise StageProblem("sftp brought nothing", "run it by hand on the host")
    if brought.is_file() or not fetch.to.exists():
        brought.replace(fetch.to)
    else:
        for one in sorted(path for path in brought.rglob("*") if path.is_file()):
            place = fetch.to / one.relative_to(brought)
            place.parent.mkdir(parents=True, exist_ok=True)
            one.replace(place)
    shutil.rmtree(fetch.part)


def bytes_there(*places: Path | None) -> int:
    """Bytes of what stands there, unfinished files too."""
    total = 0
    for place in filter(None, places):
        if place.is_file():
            total += place.stat().st_size
            continue
        for path in place.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
    return total


async def end_fetch(process: asyncio.subprocess.Process) -> None:
    """End a program that this process started, and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
            return


async def _ask(host: str, *words: str) -> tuple[int, str]:
    """Exit status and output (or complaint) of a program there.

    Raises:
        StageProblem: the host cannot be reached, or wants a password.
    """
    argv = (*_SSH, host, shlex.join(words))
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as problem:
        raise StageProblem(f"ssh: {problem.strerror or problem}", "install OpenSSH's client on the host") from problem
    try:
        async with asyncio.timeout(_ASKING):
            out, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise StageProblem(f"{host} did not answer within {_ASKING:.0f} s", "try `ssh` to it by hand") from None
    said = visible_line((out or complaint).decode("utf-8", "replace").strip()[-300:])
    if process.returncode == 255:  # ssh's own failures
        do = f"`ssh -o BatchMode=yes {host} true` must work on the host that gets the model: it asks nobody"
        raise StageProblem(f"ssh to {host}: {said}", do)
    return process.returncode or 0, said
