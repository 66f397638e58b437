"""Systemd units that hold a needed GPU are stopped, and will not come back by themselves."""

from ddconsole.preflight.check import Check, Outcome, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import DisplacedUnit, Facts

_PROPERTIES = ("LoadState", "ActiveState", "SubState", "TriggeredBy", "MainPID")
_DEADLINE = 5.0
_EXPECTED = "stopped, and nothing that starts it again"
_SEVERITY = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN, Outcome.PASS)


async def _run(facts: Facts) -> Verdict:
    needed = [one for one in facts.plan.displaced if one.gpu in facts.plan.needed_gpus]
    if not needed:
        return skipped("the plan displaces no unit" if not facts.plan.displaced else "none of its GPUs is needed")
    verdicts = [await _judge(facts, one) for one in needed]
    worst = min(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome))
    evidence = tuple(line for verdict in verdicts for line in verdict.evidence)
    return Verdict(worst.outcome, worst.observed, _EXPECTED, worst.remedy, evidence, worst.about)


async def _judge(facts: Facts, one: DisplacedUnit) -> Verdict:
    try:
        state = await _unit_state(facts, one.unit)
    except OSError as problem:
        return unknown(f"systemctl cannot be asked about {one.unit}: {problem.strerror or problem}", "ask on the host")
    if isinstance(state, str):
        return unknown(f"systemctl says nothing about {one.unit}: {state}", "ask on the host, if the unit runs there")
    evidence = [f"systemctl show {one.unit}: " + " ".join(f"{name}={state.get(name, '')}" for name in _PROPERTIES)]
    triggers = state.get("TriggeredBy", "")
    if state.get("LoadState") == "not-found":
        return warned(f"there is no unit {one.unit}", _EXPECTED, "correct or remove it in the plan", evidence, one.unit)
    if state.get("ActiveState") not in {"inactive", "failed"}:
        observed = f"{one.unit} is {state.get('ActiveState')} ({state.get('SubState')}) on GPU {one.gpu}"
        if one.by_sweep:
            return warned(observed, _EXPECTED, "nothing: the sweep stops it and starts it again", evidence, one.unit)
        remedy = f"`systemctl stop {' '.join(filter(None, (triggers, one.unit)))}`; start it again after the sweep"
        return failed(observed, _EXPECTED, remedy, evidence, one.unit)
    if triggers and not one.by_sweep:
        remedy = f"`systemctl stop {triggers}` for the time of the sweep"
        return warned(f"{one.unit} is stopped, but {triggers} can start it", _EXPECTED, remedy, evidence, one.unit)
    return passed(f"{one.unit} is stopped", _EXPECTED, evidence)


async def _unit_state(facts: Facts, unit: str) -> dict[str, str] | str:
    """The unit's properties, or why there are none."""
    argv = ("systemctl", "show", "--no-pager", "-p", ",".join(_PROPERTIES), "--", unit)
    ran = await facts.machine.run(argv, _DEADLINE)
    if ran.exit_code != 0:
        return "it did not answer" if ran.exit_code is None else ran.err.strip()[-160:] or f"exit {ran.exit_code}"
    pairs = (line.partition("=") for line in ran.out.splitlines())
    return {name: value for name, _, value in pairs}


CHECK = Check("unit.on-needed-gpu", "no systemd unit holds a needed GPU", _run)
