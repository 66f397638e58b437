"""Runs as earlier versions wrote them: each is still read, shown, exported and gone on with."""

import json
import shutil
from pathlib import Path

import pytest

from ddconsole.agent.journal import Journal
from ddconsole.agent.run_store import read_submission
from ddconsole.core import states as st
from ddconsole.core.clock import SystemClock
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.link.offline_feed import OfflineRunFeed
from ddconsole.report.export import export_run
from ddconsole.runner.boot import Boot
from ddconsole.runner.run_directory import RunDirectory

FROZEN = sorted((Path(__file__).parents[1] / "fixtures" / "runs").glob("*.*/"))
COUNTS = {"0.1.0": {st.CellPhase.DONE: 12, st.CellPhase.SKIPPED: 1, st.CellPhase.FAILED: 1}}


def test_there_is_one_of_each_version_that_is_expected() -> None:
    assert {one.name for one in FROZEN} == COUNTS.keys()


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_a_frozen_run_folds_without_a_rest(frozen: Path) -> None:
    entries, damage = read_lines((frozen / "journal.jsonl").read_bytes())
    state = fold(entries)
    assert damage is None
    assert (state.unknown_events, state.impossible_events) == (0, 0)
    assert state.counts() == COUNTS[frozen.name]
    assert OfflineRunFeed(frozen).state == state


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_a_frozen_run_exports_every_attempt(frozen: Path, tmp_path: Path) -> None:
    report = export_run(frozen, tmp_path, lambda _: None, make_pdf=False)
    assert report.warnings == ()
    requests = [path for path in report.files if path.suffix == ".jsonl"]
    exported = {json.loads(line)["cell"] for path in requests for line in path.read_text().splitlines()}
    assert exported >= {path.parent.name for path in frozen.glob("cells/*/*.json")}


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_an_agent_goes_on_with_a_frozen_run(frozen: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(frozen, tmp_path / "run")))
    before = run.journal.read_bytes()
    journal = Journal.open(run.journal, SystemClock(), boot=Boot("later", 0.0, 7.0), pid=1, version="later")
    journal.close()
    assert run.journal.read_bytes().startswith(before)
    assert journal.state.counts() == COUNTS[frozen.name]
    assert read_submission(run).run == "frozen"
