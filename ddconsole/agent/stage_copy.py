"""Copying a model's files: resumed where it was interrupted, hashed on the way, in place only when whole."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_PIECE = 8 << 20


class StageProblem(Exception):
    """It cannot be staged: `text` says what is wrong, `do` what helps."""

    def __init__(self, text: str, do: str) -> None:
        super().__init__(f"{text} → {do}")
        self.text = text
        self.do = do


class StageStopped(Exception):
    """Somebody stopped it; what was copied is kept for the next time."""


def source_files(source: Path) -> dict[str, Path]:
    """The files of a model by their names below its folder, a single file by its own; hidden ones are left out."""
    if source.is_file():
        return {source.name: source}
    found = {str(path.relative_to(source)): path for path in sorted(source.rglob("*")) if path.is_file()}
    return {name: path for name, path in found.items() if not any(part.startswith(".") for part in Path(name).parts)}


def copy_file(
    source: Path, to: Path, expected: str, report: Callable[[int], None], stop: threading.Event
) -> tuple[int, str]:
    """Copy one file; its size and hash. `report` is told the bytes of it that are there.

    Args:
        source: it is read whole.
        to: replaced only by a whole copy with the right hash.
        expected: its hash, or nothing where none is known.
        report: called often, from this thread.
        stop: looked at often.

    Raises:
        StageStopped: `stop` was set; the part that is there is kept.
        StageProblem: no room, or another hash than was expected; nothing of it is left.
        OSError: it cannot be read or written.
    """
    part = to.with_name(f".{to.name}.part")
    note = to.with_name(f".{to.name}.part.json")
    to.parent.mkdir(parents=True, exist_ok=True)
    status = source.stat()
    identity = {"source": str(source), "size": status.st_size, "mtime": status.st_mtime_ns}
    if _note(note) != identity:
        part.unlink(missing_ok=True)
        note.write_text(json.dumps(identity))
    digest = hashlib.sha256()
    try:
        with part.open("ab+") as target, source.open("rb") as origin:
            there = _hash_part(target, digest, status.st_size, stop)
            origin.seek(there)
            report(there)
            for piece in _pieces(origin, stop):
                target.write(piece)
                digest.update(piece)
                there += len(piece)
                report(there)
    except OSError as problem:
        if problem.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _remove(part, note)
        text = f"no room for {to}: {problem.strerror}"
        raise StageProblem(text, "make room there, or stage to another place; what was copied of it is gone") from None
    if there != status.st_size:
        _remove(part, note)
        raise StageProblem(f"{source} changed while it was copied", "stage it again")
    if expected and digest.hexdigest() != expected:
        _remove(part, note)
        text = f"{source} has not the hash of the first good copy: {digest.hexdigest()[:12]}, not {expected[:12]}"
        raise StageProblem(text, "find out which one is right; `--forget` takes the source's word")
    part.replace(to)
    note.unlink(missing_ok=True)
    return there, digest.hexdigest()


def hash_file(path: Path, report: Callable[[int], None], stop: threading.Event) -> str:
    """The hash of a whole file.

    Raises:
        StageStopped: `stop` was set.
    """
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        for piece in _pieces(file, stop):
            digest.update(piece)
            done += len(piece)
            report(done)
    return digest.hexdigest()


def _hash_part(target: BinaryIO, digest: "hashlib._Hash", size: int, stop: threading.Event) -> int:
    """Take up an interrupted copy: hash what is there; one that is longer than its source begins anew."""
    if os.fstat(target.fileno()).st_size > size:
        target.truncate(0)
    target.seek(0)
    done = 0
    for piece in _pieces(target, stop):
        digest.update(piece)
        done += len(piece)
    return done


def _pieces(file: BinaryIO, stop: threading.Event) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        if stop.is_set():
            raise StageStopped
        yield piece


def _note(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
