"""The checks on this machine and on the rehearsed one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.preflight.check import Outcome, Tier
from ddconsole.preflight.facts import Facts, PreflightPlan
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.rehearsed_machine import RehearsedMachine
from ddconsole.preflight.run_checks import run_checks
from ddconsole.preflight.take_inventory import take_inventory
from ddconsole.probe.monitor import one_sample
from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.sampler import HostSampler


async def test_this_machine_for_a_plan_without_gpus(tmp_path: Path) -> None:
    plan = PreflightPlan(run_directory=str(tmp_path / "run"), disk_needed_bytes=1 << 20)
    facts = Facts(plan=plan, machine=LocalMachine(), host=await one_sample())

    findings = await run_checks(facts, Tier.GATE)

    assert {each.id for each in findings if each.outcome is Outcome.PASS} == {
        "host.reachable", "disk.space", "memory.room", "proc.stuck",
    }  # fmt: skip
    assert {each.outcome for each in findings} == {Outcome.PASS, Outcome.SKIP}
    assert not any(each.simulated for each in findings)


async def test_rehearsed_machine_passes_and_every_finding_is_marked(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDCONSOLE_REHEARSAL", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    host = await one_sample()
    plan = replace(
        facts.plan, run_directory=str(tmp_path), ports=(), model=str(tmp_path / "M"), draft=str(tmp_path / "D")
    )
    machine = RehearsedMachine(host, (plan.model, *plan.drafts))

    known = replace(facts, plan=plan, host=host, machine=machine, inventory=await take_inventory(LocalMachine()))
    findings = await run_checks(known, Tier.GATE)

    assert {each.id: each.observed for each in findings if each.outcome not in {Outcome.PASS, Outcome.SKIP}} == {}
    assert {each.id for each in findings if each.outcome is Outcome.SKIP} == {
        "port.free", "gpu.row-remap", "gpu.compute-mode", "model.manifest",
    }, "what is not simulated is left out, and not green"  # fmt: skip
    assert all(each.simulated for each in findings)


async def test_rehearsed_unit_is_seen(facts: Facts, tmp_path: Path) -> None:
    assert facts.host is not None
    machine = RehearsedMachine(facts.host, active_units=("ddtree-gpu4.service",))

    findings = await run_checks(replace(facts, machine=machine), Tier.GATE)

    assert next(each for each in findings if each.id == "unit.on-needed-gpu").outcome is Outcome.FAIL


async def test_recorded_h200_machine_is_not_the_one_that_the_plan_means(facts: Facts, tmp_path: Path) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures/nvml"
    write_files(json.loads((fixtures / "h200x2-files.json").read_text()), tmp_path)
    host = HostSampler(RecordedNvml(json.loads((fixtures / "h200x2.json").read_text())), lambda: 5.0, tmp_path).sample()
    two = replace(facts.plan, deployments=(), expected_gpus=2, expected_gpu_name="H200")

    wanted = await run_checks(replace(facts, host=host, plan=two))
    other = await run_checks(replace(facts, host=host))

    assert next(each for each in wanted if each.id == "gpu.count").observed == "2 x NVIDIA H200"
    assert next(each for each in other if each.id == "gpu.count").observed == "2 GPUs"
