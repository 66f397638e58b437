"""What an operator tells pre-flight, over the agent's own functions: accept, take back, record."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import cells, deployment, ended, phases, submission, until

from ddconsole.agent.preflight import PreflightOrder, PreflightRefused, preflight_findings
from ddconsole.agent.preflight_notes import ACCEPTED, PreflightNotes
from ddconsole.agent.service import Service
from ddconsole.core.clock import SystemClock
from ddconsole.core.wire import Submission
from ddconsole.preflight.check import Tier
from ddconsole.report.export import export_run

SUBMISSION = submission([deployment("d01")], cells("d01", 1))


async def findings(order: PreflightOrder, runs: Path, asked: Submission = SUBMISSION) -> dict[str, dict[str, object]]:
    found = await preflight_findings(asked, order, runs, SystemClock())
    return {str(one["id"]): dict(one) for one in found}


async def test_finding_is_accepted_with_a_reason_and_taken_back(tmp_path: Path) -> None:
    broken = replace(SUBMISSION, model={"path": str(tmp_path / "nowhere")})
    gate = PreflightOrder(Tier.GATE)

    failed = (await findings(gate, tmp_path, broken))["model.complete"]
    accept = PreflightOrder(Tier.GATE, accept="model.complete", because="it comes later", by="mara@laptop")
    accepted = (await findings(accept, tmp_path, broken))["model.complete"]
    later = (await findings(gate, tmp_path, broken))["model.complete"]
    revoked = (await findings(PreflightOrder(Tier.GATE, revoke="model.complete"), tmp_path, broken))["model.complete"]

    assert (failed["outcome"], failed["accepted"]) == ("fail", "")
    assert accepted["accepted"] == later["accepted"] == "it comes later (mara@laptop)"
    assert revoked["accepted"] == ""
    with pytest.raises(PreflightRefused, match="a host that fails is not recorded as good"):
        await findings(PreflightOrder(Tier.GATE, record=True), tmp_path, broken)


async def test_what_cannot_be_accepted_is_refused_with_what_can(tmp_path: Path) -> None:
    with pytest.raises(PreflightRefused, match="found nothing that could be accepted"):
        await findings(PreflightOrder(Tier.GATE, accept="host.reachable", because="why"), tmp_path)
    with pytest.raises(PreflightRefused, match="needs a reason"):
        await findings(PreflightOrder(Tier.GATE, accept="host.reachable", because=" "), tmp_path)
    with pytest.raises(PreflightRefused, match="nothing was accepted of"):
        await findings(PreflightOrder(Tier.GATE, revoke="host.reachable"), tmp_path)


async def test_good_host_is_recorded_and_compared(tmp_path: Path) -> None:
    await findings(PreflightOrder(Tier.GATE, record=True), tmp_path, replace(SUBMISSION, model={}))
    notes = PreflightNotes(tmp_path, simulated=False)

    profile = notes.profile()

    assert profile is not None
    assert profile["hostname"]
    assert PreflightNotes(tmp_path, simulated=True).profile() is None, "a simulated host is another one"


def test_damaged_notes_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / ".accepted.json").write_text("{")
    (tmp_path / ".profile.json").write_text("[]")
    (tmp_path / ".smoke.json").write_text(json.dumps([1, {"build": "b", "how": "plain"}]))
    notes = PreflightNotes(tmp_path, simulated=False)

    assert notes.accepted() == []
    assert notes.profile() is None
    notes.served({"build": "b", "how": "plain", "run": "r2"})
    notes.served({"build": "b", "how": "dflash", "run": "r2"})
    assert [one["how"] for one in notes.smoke()] == ["plain", "dflash"]


@pytest.mark.engine
async def test_what_was_accepted_lets_the_sweep_begin_and_stands_in_its_journal_and_report(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    service = Service(runs, SystemClock())
    await service.start()
    broken = replace(
        submission([deployment("d01")], cells("d01", 1), preflight=True),
        model={"path": str(tmp_path / "nowhere"), "draft": None, "source": None},
    )
    accept = PreflightOrder(Tier.GATE, accept="model.complete", because="the engine brings it", by="mara@laptop")
    assert (await findings(accept, runs, broken))["model.complete"]["accepted"]
    service.submit(broken)
    state = await until(service, "test-run", ended)
    await service.stop()
    assert state.outcome == "complete", phases(state)
    (told,) = [one.text for one in state.warnings if one.about == ACCEPTED]
    assert told.startswith("model.complete: ")
    assert told.endswith("; accepted: the engine brings it (mara@laptop)")
    export_run(runs / "test-run", tmp_path / "report", lambda _: None, make_pdf=False)
    with next((tmp_path / "report").rglob("tab-environment*.csv")).open(newline="") as file:
        rows = [(row["what"], row["value"]) for row in csv.DictReader(file)]
    assert ("accepted", told) in rows
