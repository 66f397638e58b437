"""Where an export is written: checked before anything is made, and what lies there that is not ours is kept.

`MANIFEST.sha256` in a folder says what exports wrote there: a file of another content is the operator's, who wrote it
or changed it.
"""

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MANIFEST = "MANIFEST.sha256"
OURS = re.compile(r"[a-z0-9-]+\.(tex|csv|jsonl|py)")
"""Names of a LaTeX export's files, without its PDF."""
_LISTED = re.compile(r"([0-9a-f]{64})  ([a-z0-9-]+\.(?:tex|csv|jsonl|py|md|parquet|pdf))")


class ExportFailed(Exception):
    """Nothing usable was written. The text says what is wrong, where, and what to do."""


def check_folder(to: Path) -> None:
    """Make the folder if need be, and see that files can be made in it.

    Raises:
        ExportFailed: they cannot.
    """
    _check_parts(to)
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=to):
            pass
    except OSError as problem:
        raise cannot_write(to, problem, "folder") from problem


def check_file(path: Path) -> None:
    """See that a file can be written there; its folder is made if need be.

    Raises:
        ExportFailed: it cannot.
    """
    if not path.exists() or path.is_file():
        check_folder(path.parent)
    elif not os.access(path, os.W_OK):
        raise ExportFailed(f"{path}: you may not write to it; name another file")


def cannot_write(path: Path, problem: OSError, what: str) -> ExportFailed:
    """What is wrong with a place, and what to do about it.

    Args:
        path: the place.
        problem: what the system says.
        what: what is to be named instead, `folder` or `file`.
    """
    wrong, remedy = f"cannot be written ({problem.strerror})", f"name another {what}"
    match problem.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = f"free space or name another {what}"
        case errno.EROFS:
            wrong = "its file system is read-only"
        case errno.EACCES | errno.EPERM:
            wrong = "you may not write there"
        case errno.ENOENT:
            wrong = "nothing can be made there"
        case _:
            pass
    return ExportFailed(f"{path}: {wrong}; {remedy}")


def write_texts(to: Path, texts: Mapping[str, str], document: str = "main") -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write files with their manifest into a folder, in place of an earlier export's.

    A file of the operator's, and one of ours that was changed, is kept beside as `NAME.yours`.

    Args:
        to: the folder, made if need be.
        texts: the files by name.
        document: of which of them TeX will make a PDF; that of a document that is not ours is kept too.

    Returns:
        The files, and a sentence for each that was kept.

    Raises:
        ExportFailed: the folder cannot be written.
    """
    check_folder(to)
    data = {name: text.encode() for name, text in texts.items()}
    try:
        earlier = _listed(to)
        if (to / f"{document}.pdf").exists() and not _is_ours(to / f"{document}.tex", earlier, data):
            kept = [_keep(to / f"{document}.pdf")]
        else:
            kept = []
        _remove_earlier(to, earlier, data)
        for name, raw in data.items():
            kept += _written(to / name, raw, earlier)
        others = {name: digest for name, digest in earlier.items() if not OURS.fullmatch(name)}
        kept += _written_manifest(to, others | {name: _digest(raw) for name, raw in data.items()})
    except OSError as problem:
        raise cannot_write(Path(problem.filename or to), problem, "folder") from problem
    return tuple(sorted(to / name for name in (*data, MANIFEST))), tuple(kept)


def write_into(folder: Path, name: str, raw: bytes) -> tuple[Path, tuple[str, ...]]:
    """Write one file beside what exports wrote into a folder; its path, and a sentence for each file that was kept.

    Raises:
        ExportFailed: the folder cannot be written.
    """
    check_folder(folder)
    try:
        earlier = _listed(folder)
        kept = _written(folder / name, raw, earlier)
        kept += _written_manifest(folder, earlier | {name: _digest(raw)})
    except OSError as problem:
        raise cannot_write(Path(problem.filename or folder), problem, "folder") from problem
    return folder / name, tuple(kept)


def write_whole(path: Path, data: bytes) -> bool:
    """Write the file that the operator named, in place of what is there; whether something else was there.

    Raises:
        ExportFailed: it cannot be written.
    """
    check_file(path)
    if path.exists() and not path.is_file():
        return _to_device(path, data)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        replaced = path.exists() and path.read_bytes() != data
        part.write_bytes(data)
        part.replace(path)
    except OSError as problem:
        with suppress(OSError):
            part.unlink()
        raise cannot_write(path, problem, "file") from problem
    return replaced


def _to_device(path: Path, data: bytes) -> bool:
    try:
        path.write_bytes(data)
    except OSError as problem:
        wrong = f"a device or pipe that takes nothing ({problem.strerror})"
        raise ExportFailed(f"{path}: {wrong}; name a file") from problem
    return False


def _check_parts(to: Path) -> None:
    """No part of the path may be anything else than a folder: that is said of the part, not of the whole."""
    try:
        part = next((one for one in (to, *to.parents) if one.exists() or one.is_symlink()), None)
    except OSError as problem:
        raise cannot_write(to, problem, "folder") from problem
    if part is None or part.is_dir():
        return
    what = "a file" if part.is_file() else "a link to nothing" if part.is_symlink() else "a device or pipe"
    raise ExportFailed(f"{part}: {what} is there, not a folder; name another folder")


def _written(path: Path, raw: bytes, earlier: Mapping[str, str]) -> list[str]:
    """Write a file; a sentence where another was kept."""
    kept = []
    if (path.exists() or path.is_symlink()) and not _is_ours(path, earlier, {path.name: raw}):
        kept.append(_keep(path, was_listed=path.name in earlier))
    path.write_bytes(raw)
    return kept


def _is_ours(path: Path, earlier: Mapping[str, str], wanted: Mapping[str, bytes]) -> bool:
    """Whether nothing is lost with a file: an export wrote it as it is, or is about to."""
    if path.is_symlink() or not path.is_file():
        return False
    raw = path.read_bytes()
    return raw == wanted.get(path.name) or _digest(raw) == earlier.get(path.name)


def _keep(path: Path, *, was_listed: bool = False) -> str:
    beside, number = path.with_name(f"{path.name}.yours"), 1
    while beside.exists() or beside.is_symlink():
        number += 1
        beside = path.with_name(f"{path.name}.yours-{number}")
    path.rename(beside)
    why = "was changed since it was exported" if was_listed else "was not written by an export"
    return f"{path.name} {why}: yours is kept as {beside.name}"


def _listed(to: Path) -> dict[str, str]:
    """By name, the digest of what exports wrote; nothing where the manifest is not one of ours."""
    try:
        lines = (to / MANIFEST).read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
        return {}
    found = [_LISTED.fullmatch(line) for line in lines]
    return {one[2]: one[1] for one in found if one} if all(found) else {}


def _written_manifest(to: Path, digests: Mapping[str, str]) -> list[str]:
    path = to / MANIFEST
    kept = [_keep(path)] if (path.exists() or path.is_symlink()) and not _listed(to) else []
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())), encoding="ascii")
    return kept


def _remove_earlier(to: Path, earlier: Mapping[str, str], wanted: Mapping[str, bytes]) -> None:
    """Remove what an earlier export wrote here, is not made any more, and nobody changed."""
    for name in earlier:
        path = to / name
        if name not in wanted and OURS.fullmatch(name) and _is_ours(path, earlier, {}):
            path.unlink()


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
