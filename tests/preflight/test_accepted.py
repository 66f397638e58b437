"""Findings that the operator accepted, and what becomes of them."""

from dataclasses import replace
from pathlib import PurePath

from broken_hosts import HELD, nvml, recorded
from synthetic_host import SyntheticHost

from ddconsole.preflight.check import Outcome, finding_from_json, finding_to_json, holding_back
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import DiskRoom
from ddconsole.preflight.preflight_text import exit_status, preflight_lines
from ddconsole.preflight.recorded_machine import RecordedMachine
from ddconsole.preflight.run_checks import run_checks

REASON = "that is our own demo (mara@laptop)"


async def test_accepted_failure_keeps_its_outcome_and_holds_nothing_back(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    held = nvml({5: HELD})(facts, machine, synthetic_host)
    before = await run_checks(held)
    reasons = {(one.id, one.about): REASON for one in before if one.outcome in {Outcome.FAIL, Outcome.UNKNOWN}}

    after = await run_checks(held, accepted=reasons)

    finding = next(one for one in after if one.id == "gpu.memory-free")
    assert [one.id for one in holding_back(before, "launch")] == ["gpu.memory-free"]
    assert (finding.outcome, finding.accepted) == (Outcome.FAIL, REASON)
    assert holding_back(after, "launch") == []
    assert (exit_status(before), exit_status(after)) == (2, 0)
    assert any(REASON in line for line in preflight_lines(after))
    assert finding_from_json(finding_to_json(finding)) == finding


async def test_what_was_accepted_of_one_gpu_is_not_of_another(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    accepted = {("gpu.memory-free", "GPU 5"): REASON}

    findings = await run_checks(nvml({6: HELD})(facts, machine, synthetic_host), accepted=accepted)

    assert next(one for one in findings if one.id == "gpu.memory-free").accepted == ""


async def test_what_was_accepted_of_a_disk_holds_once_the_runs_folder_is_there(
    facts: Facts, machine: RecordedMachine
) -> None:
    runs = PurePath(facts.plan.run_directory).parent
    machine.room = DiskRoom(str(runs), 1 << 20, 10_000, writable=True)
    before = next(one for one in await run_checks(facts) if one.id == "disk.space")
    accepted = {(before.id, before.about): REASON}
    for run in ("r1", "r2"):
        machine.room = DiskRoom(str(runs / run), 1 << 19, 10_000, writable=True)
        begun = replace(facts, plan=replace(facts.plan, run_directory=str(runs / run)))
        finding = next(one for one in await run_checks(begun, accepted=accepted) if one.id == "disk.space")
        assert (finding.outcome, finding.accepted) == (Outcome.FAIL, REASON)


async def test_children_of_an_accepted_failure_run(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    fewer = replace(facts, plan=replace(facts.plan, expected_gpus=16))

    blocked = await run_checks(fewer)
    looked = await run_checks(fewer, accepted={("gpu.count", ""): REASON})

    assert next(one for one in blocked if one.id == "gpu.mig").blocked_by == "gpu.count"
    assert next(one for one in looked if one.id == "gpu.mig").outcome is Outcome.PASS


async def test_without_a_profile_nothing_is_compared_and_that_is_no_fault(facts: Facts) -> None:
    findings = {one.id: one for one in await run_checks(facts)}

    for check in ("profile.cards", "profile.settings", "profile.topology", "profile.build"):
        assert findings[check].outcome is Outcome.SKIP
        assert "--record" in findings[check].observed


async def test_card_that_was_moved_is_a_warning(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    swapped = {
        4: {"nvmlDeviceGetUUID": {"value": "GPU-synthetic-5"}},
        5: {"nvmlDeviceGetUUID": {"value": "GPU-synthetic-4"}},
    }

    findings = {one.id: one for one in await run_checks(recorded(nvml(swapped))(facts, machine, synthetic_host))}

    assert findings["profile.cards"].outcome is Outcome.WARN
    assert "GPU 4 at 0000:14:00.0 is now GPU 5 at 0000:15:00.0" in findings["profile.cards"].observed
