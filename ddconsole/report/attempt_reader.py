"""Reads attempt files, and holds them against what the journal says of them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from ddconsole.core.attempt_file import AttemptFile, attempt_from_json
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState

AttemptLoader: TypeAlias = Callable[[str, int], AttemptFile]
"""The file of (cell, attempt). Raises `AttemptUnavailable` with the reason for the operator."""

LARGEST_FILE = 512 * 1024 * 1024
"""Bytes of one attempt file or journal that are read at most."""


class AttemptUnavailable(Exception):
    """An attempt that the journal counts cannot be used. The text says why, without a path."""


class RunUnreadable(Exception):
    """The run directory cannot be exported. The text says what is wrong, where, and what to do."""


def attempts_in_folder(run_directory: Path, state: RunState) -> AttemptLoader:
    """A loader for `cells/<cell>/<attempt>.json` under `run_directory`.

    A file whose SHA-256 is not the journal's is refused: it was changed after it was committed.
    """
    hashes = {(row.cell.id, attempt.number): attempt.sha256 for row in state.cells.values() for attempt in row.attempts}

    def load(cell: str, attempt: int) -> AttemptFile:
        path = run_directory / "cells" / cell / f"{attempt}.json"
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise AttemptUnavailable("its attempt file is larger than 512 MiB")
            raw = path.read_bytes()
        except FileNotFoundError:
            raise AttemptUnavailable("its attempt file is missing") from None
        except OSError as problem:
            raise AttemptUnavailable(f"its attempt file cannot be read: {problem.strerror}") from problem
        committed = hashes.get((cell, attempt), "")
        if committed and hashlib.sha256(raw).hexdigest() != committed:
            raise AttemptUnavailable("its attempt file was changed after it was committed")
        return _parsed(raw)

    return load


def attempts_in_memory(attempts: Mapping[tuple[str, int], AttemptFile]) -> AttemptLoader:
    """A loader for attempts that are at hand."""

    def load(cell: str, attempt: int) -> AttemptFile:
        try:
            return attempts[cell, attempt]
        except KeyError:
            raise AttemptUnavailable("its attempt file is missing") from None

    return load


def state_of_run(run_directory: Path) -> tuple[RunState, str | None]:
    """The fold of a run directory's journal, and a warning when the journal is damaged.

    Raises:
        RunUnreadable: there is no journal, or it holds no run.
    """
    path = run_directory / "journal.jsonl"
    try:
        entries, damage = read_lines(path.read_bytes())
    except OSError as problem:
        raise RunUnreadable(
            f"{path}: the journal cannot be read ({problem.strerror}); name a run directory, as `ddconsole runs` lists"
        ) from problem
    state = fold(entries)
    if state.created is None:
        why = "it is empty" if not entries and damage is None else "its first line is missing or damaged"
        raise RunUnreadable(
            f"{path}: the journal holds no run: {why}, so nothing of {run_directory.name} is known here; "
            "take another run of those that `ddconsole runs` lists"
        )
    if damage is None:
        return state, None
    what = "its last line is torn" if damage.torn_tail else f"line {damage.line} is damaged, nothing after it was read"
    return state, f"the journal is damaged: {what}"


def _parsed(raw: bytes) -> AttemptFile:
    try:
        data = json.loads(raw)
        if not isinstance(data, dict):
            raise AttemptUnavailable("its attempt file is not a JSON object")
        return attempt_from_json(data)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise AttemptUnavailable(f"its attempt file cannot be understood: {problem}") from problem
