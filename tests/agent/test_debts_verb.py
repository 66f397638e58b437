"""`ddconsole debts`: what a run owes, from what is on disk."""

import json
from pathlib import Path

import pytest
from journals import created, entries

from ddconsole import cli
from ddconsole.core import events as ev
from ddconsole.core.journal_line import encode_line


def test_it_lists_what_is_owed_and_why_and_says_so_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    journal = tmp_path / "r" / "journal.jsonl"
    journal.parent.mkdir()
    taken: list[ev.Event] = [
        ev.DebtTaken("x.service", "x.service"),
        ev.DebtKept("x.service", "it ended 5 s after its start"),
    ]
    settled = ev.DebtSettled("x.service", "put back")
    events: list[ev.Event] = [created(), *taken, settled]
    lines = [encode_line(one) for one in entries(events)]
    journal.write_bytes(b"".join(lines[:-1]))

    assert cli.main(["debts", "r"]) == 1
    assert "x.service  stopped since 1970-01-01" in (told := capsys.readouterr().out)
    assert told.endswith("not put back: it ended 5 s after its start\n")
    assert cli.main(["debts", "r", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["problem"] == "it ended 5 s after its start"

    journal.write_bytes(b"".join(lines))
    assert cli.main(["debts", "r"]) == 0
    assert capsys.readouterr().out == "this run owes nothing\n"
