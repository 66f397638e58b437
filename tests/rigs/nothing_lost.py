"""The verdict on a sweep whose processes were killed: nothing finished is lost or counted twice, nothing is left."""

import hashlib
import json

from sweeps import survivors

from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.events import AttemptDone
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.runner.run_directory import RunDirectory


def assert_nothing_lost(run: RunDirectory, *, repeated: int = 1, requests: int = 2) -> RunState:
    """Every cell is done, once, with all its requests; at most `repeated` of them were begun once more."""
    entries, damage = read_lines(run.journal.read_bytes())
    assert damage is None
    state = fold(entries)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, state.cells
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert state.impossible_events == 0
    done = [entry.event for entry in entries if isinstance(entry.event, AttemptDone)]
    assert sorted(event.cell for event in done) == sorted(state.cells), done
    for event in done:
        raw = run.attempt(event.cell, event.attempt).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == event.sha256
        assert attempt_from_json(json.loads(raw)).figures["succeeded"] == requests
    again = {name: row.attempts for name, row in state.cells.items() if len(row.attempts) > 1}
    assert sum(len(attempts) - 1 for attempts in again.values()) <= repeated, again
    assert survivors(run, state) == []
    assert [str(path) for path in run.path.rglob("*.part")] == []
    return state
