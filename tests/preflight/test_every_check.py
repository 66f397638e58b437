"""Each check seen in pass, fail and unknown on a healthy synthetic host with one thing changed."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from broken_checks import BROKEN, NEVER_UNKNOWN, ONLY_WARNS, UNKNOWN
from broken_hosts import Broken, Change, device, driver_mismatch, known, planned, port_taken
from one_check import one, plan
from synthetic_host import SyntheticHost

from ddconsole.core.sweep import Placement
from ddconsole.preflight.check import Finding, Outcome, Tier, holding_back
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import Facts, Reach
from ddconsole.preflight.profile import profile_of
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine
from ddconsole.preflight.register import CHECKS
from ddconsole.preflight.run_checks import run_checks


def bad(findings: Iterable[Finding]) -> list[str]:
    """Checks that found something: the others are green or do not apply."""
    return [finding.id for finding in findings if finding.outcome not in {Outcome.PASS, Outcome.SKIP}]


async def test_healthy_host_passes_everything(facts: Facts) -> None:
    findings = await run_checks(replace(facts, profile=profile_of(facts, 1.0)), Tier.LOAD)

    assert {finding.id: finding.observed for finding in findings if finding.outcome is not Outcome.PASS} == {}
    assert len(findings) == len(CHECKS)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.check)
async def test_what_is_wrong_is_found(
    broken: Broken, facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    finding = await one(broken.change(facts, machine, synthetic_host), broken.check)

    assert finding.outcome is broken.outcome
    assert broken.observed in finding.observed
    assert broken.remedy in finding.remedy
    assert finding.evidence or broken.check in {"host.reachable", "plan.baseline"}
    assert finding.blocks


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.check)
async def test_switching_one_check_off_leaves_a_broken_host_green(
    broken: Broken, facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    """No other check covers for it, and none speaks of what is not wrong."""
    changed = broken.change(facts, machine, synthetic_host)
    also = ALSO_SEEN_BY.get(broken.check, set())

    without = await run_checks(changed, Tier.LOAD, [known for known in CHECKS if known.id not in {broken.check, *also}])
    everything = await run_checks(broken.change(facts, machine, synthetic_host), Tier.LOAD)

    assert set(bad(without)) - DEPENDENT.get(broken.check, set()) == set()
    assert set(bad(everything)) == {broken.check, *also}


ALSO_SEEN_BY = {"gpu.memory-free": {"gpu.foreign-process"}}
"""Memory that no process holds is one check's failure and leaves the other without an answer."""
DEPENDENT = {
    "driver.answers": {known.id for known in CHECKS if "driver.answers" in known.needs} | {"p2p.status"},
    "model.complete": {"model.manifest"},
    "load.answers": {known.id for known in CHECKS if known.id.startswith("load.")},
}
"""Without it, what needs it speaks: nothing is known behind the driver, and a short file is not the good copy."""


async def test_every_check_was_seen_bad_and_unknown() -> None:
    """A check that cannot fail is a defect, and so is one whose silence nobody has seen.

    That each passes is seen on the healthy host; here that what follows leaves none of the register out.
    """
    everything = {known.id for known in CHECKS}
    seen = {outcome: {one.check for one in BROKEN if one.outcome is outcome} for outcome in Outcome}

    assert everything - seen[Outcome.FAIL] == ONLY_WARNS
    assert seen[Outcome.WARN] >= ONLY_WARNS
    assert everything - {name for name, _, _ in UNKNOWN} == NEVER_UNKNOWN


@pytest.mark.parametrize(("check", "change", "observed"), UNKNOWN, ids=lambda one: one if isinstance(one, str) else "")
async def test_unknown(
    check: str, change: Change, observed: str, facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    changed = change(facts, machine, synthetic_host)
    chosen = [replace(known, needs=(), deadline=min(known.deadline, 0.1)) for known in CHECKS if known.id == check]

    (finding,) = await run_checks(changed, Tier.LOAD, chosen)

    assert finding.outcome is Outcome.UNKNOWN
    assert observed in finding.observed


def cpu_only(facts: Facts) -> Facts:
    placed_nowhere = tuple(replace(each, placement=Placement()) for each in facts.plan.deployments)
    return plan(facts, deployments=placed_nowhere, expected_gpus=None, ports=(), displaced=())


async def test_plan_without_gpus_skips_what_does_not_apply(facts: Facts) -> None:
    findings = await run_checks(cpu_only(facts), Tier.LOAD)

    skipped = {finding.id for finding in findings if finding.outcome is Outcome.SKIP}
    assert {each.id for each in CHECKS} - skipped == {
        "agent.survives", "host.reachable", "host.clock", "disk.space", "proc.stuck", "proc.leftovers",
        "model.complete", "model.manifest", "memory.room",
        "shm.leftovers", "memory.swap", "engine.flags", "numa.binding", "numa.balancing", "cpu.quota",
        "cpu.governor", "host.pressure", "host.limits", "engine.smoke", "plan.baseline",
    }  # fmt: skip
    assert {finding.outcome for finding in findings if finding.id not in skipped} == {Outcome.PASS}


async def test_children_of_a_failure_are_blocked_and_not_red(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    findings = {
        each.id: each
        for each in await run_checks(device(DEVICE, RecordedDevice("EPERM"))(facts, machine, synthetic_host))
    }

    assert findings["cuda.init"].outcome is Outcome.SKIP
    assert findings["cuda.init"].observed == "blocked by dev.uvm-open"
    assert findings["cuda.init"].blocked_by == "dev.uvm-open"


async def test_unreachable_host_blocks_all_but_the_plan(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    away = known(reach=Reach("ssh ct200", "connection refused by ct200:22", "start sshd"))

    findings = await run_checks(away(facts, machine, synthetic_host))

    blocked = [each for each in findings if each.blocked_by == "host.reachable"]
    others = {each.id: each.outcome for each in findings if each not in blocked}
    of_the_plan = dict.fromkeys(("cuda.env", "nccl.env", "plan.baseline"), Outcome.PASS)
    assert others == {"host.reachable": Outcome.FAIL, **of_the_plan}
    assert machine.ran == [], "nothing is asked of a host that cannot be reached"


async def test_grandchildren_name_the_failure_and_not_the_child(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    findings = {each.id: each for each in await run_checks(driver_mismatch(facts, machine, synthetic_host))}

    assert findings["gpu.count"].blocked_by == "driver.match"
    assert findings["gpu.memory-free"].blocked_by == "driver.match"


async def test_gate_is_the_fast_part(facts: Facts, machine: RecordedMachine) -> None:
    findings = await run_checks(facts, Tier.GATE)

    assert {each.id for each in findings} == {
        "host.reachable", "disk.space", "driver.match", "driver.answers", "dev.nodes", "gpu.count", "dev.uvm-open",
        "cuda.init", "gpu.recovery", "gpu.ecc-errors", "gpu.row-remap", "gpu.slowdown", "gpu.xid", "gpu.idle",
        "gpu.memory-free", "gpu.foreign-process", "unit.on-needed-gpu", "proc.stuck", "gpu.mig", "gpu.compute-mode",
        "gpu.power-limit", "port.free", "model.complete",
        "model.manifest", "memory.room", "shm.room", "engine.attention-backend",
        "cuda.env", "nccl.env", "numa.cpus",
    }  # fmt: skip
    assert not any("sglang.launch_server" in argv for argv in machine.ran)


async def test_broken_check_is_unknown_and_the_others_go_on(facts: Facts) -> None:
    async def broken(_: Facts) -> Any:
        raise KeyError("surprise")

    checks = [replace(CHECKS[0], run=broken), CHECKS[1]]

    first, second = await run_checks(facts, checks=checks)

    assert first.outcome is Outcome.UNKNOWN
    assert "KeyError" in first.observed
    assert second.outcome is Outcome.PASS


async def test_what_a_failure_holds_back(facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost) -> None:
    no_baseline = planned(baseline="autoregressive")

    findings = await run_checks(no_baseline(port_taken(facts, machine, synthetic_host), machine, synthetic_host))

    assert [each.id for each in holding_back(findings, "launch")] == ["port.free"]
    assert [each.id for each in holding_back(findings, "comparison")] == ["plan.baseline"]


def ids(findings: Iterable[Finding]) -> list[str]:
    return [finding.id for finding in findings]


async def test_order_is_the_registers(facts: Facts) -> None:
    order = [check.id for check in CHECKS]
    assert ids(await run_checks(facts, Tier.LOAD)) == order
    assert not any(name.startswith("load.") for name in ids(await run_checks(facts))), "load is asked for by name"
    for check in CHECKS:
        assert set(check.needs) <= set(order[: order.index(check.id)]), "what it needs stands before it"
