"""Systemd units that hold a needed GPU are stopped, or can be stopped and put back, and stay down meanwhile."""

from ddconsole.preflight.check import Check, Outcome, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import DisplacedUnit, Facts

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "TriggeredBy",
    "MainPID",
    "Restart",
    "Transient",
    "NeedDaemonReload",
    "UnitFileState",
)
_DEADLINE = 5.0
_EXPECTED = "stopped, and nothing that starts it again"
_TO_DISPLACE = "stopped, or one that the sweep can stop and put back"
_SEVERITY = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN, Outcome.PASS)
_SYSTEM, _USER = ("systemctl",), ("systemctl", "--user")


async def _run(facts: Facts) -> Verdict:
    needed = [one for one in facts.plan.displaced if one.gpu is None or one.gpu in facts.plan.needed_gpus]
    if not needed:
        return skipped("the plan displaces no unit" if not facts.plan.displaced else "none of its GPUs is needed")
    verdicts = [await _judge(facts, one) for one in needed]
    worst = min(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome))
    evidence = tuple(line for verdict in verdicts for line in verdict.evidence)
    return Verdict(worst.outcome, worst.observed, worst.expected, worst.remedy, evidence, worst.about)


async def _judge(facts: Facts, one: DisplacedUnit) -> Verdict:
    try:
        manager, state = await _found(facts, one.unit)
    except OSError as problem:
        return _cannot_be_asked(one, f"systemctl cannot be asked about {one.unit}: {problem.strerror or problem}")
    if isinstance(state, str):
        return _cannot_be_asked(one, f"systemctl says nothing about {one.unit}: {state}")
    asked = " ".join((*manager, "show", one.unit))
    evidence = [f"{asked}: " + " ".join(f"{name}={state.get(name, '')}" for name in _PROPERTIES)]
    triggers = state.get("TriggeredBy", "")
    if state.get("LoadState") == "not-found":
        return warned(f"there is no unit {one.unit}", _EXPECTED, "correct or remove it in the plan", evidence, one.unit)
    if state.get("ActiveState") not in {"inactive", "failed"}:
        place = "the needed GPUs" if one.gpu is None else f"GPU {one.gpu}"
        observed = f"{one.unit} is {state.get('ActiveState')} ({state.get('SubState')}) on {place}"
        if one.by_sweep:
            return await _displaceable(facts, one, manager, state, observed, evidence)
        stop = " ".join((*manager, "stop", *triggers.split(), one.unit))
        return failed(observed, _EXPECTED, f"`{stop}`; start it again after the sweep", evidence, one.unit)
    if triggers and not one.by_sweep:
        remedy = f"`{' '.join((*manager, 'stop'))} {triggers}` for the time of the sweep"
        return warned(f"{one.unit} is stopped, but {triggers} can start it", _EXPECTED, remedy, evidence, one.unit)
    return passed(f"{one.unit} is stopped", _EXPECTED, evidence)


def _cannot_be_asked(one: DisplacedUnit, observed: str) -> Verdict:
    """Unknown, but for a unit that the sweep is to stop: it could not."""
    if one.by_sweep:
        remedy = (
            f"stop it yourself and take `displace` of {one.unit} out of the plan: it could not be stopped and put back"
        )
        return failed(observed, _TO_DISPLACE, remedy, (), one.unit)
    return unknown(observed, "ask on the host, if the unit runs there")


async def _displaceable(
    facts: Facts,
    one: DisplacedUnit,
    manager: tuple[str, ...],
    state: dict[str, str],
    observed: str,
    evidence: list[str],
) -> Verdict:
    """Whether the sweep can stop a unit that runs, and put back the same one."""
    if state.get("NeedDaemonReload") == "yes":
        remedy = (
            f"`systemctl daemon-reload` and restart {one.unit}, or restore its file: it would come back as another one"
        )
        observed += ", and its file was changed since it was started"
        return failed(observed, _TO_DISPLACE, remedy, evidence, one.unit)
    if manager == _SYSTEM:
        account = await facts.machine.run(("id", "-u"), _DEADLINE)
        if account.out.strip() != "0":
            evidence.append(f"id -u: {account.out.strip()}")
            remedy = f"connect as root; or stop {one.unit} yourself and take it out of the plan's `displace`"
            observed += ", and only root may stop a unit of the system"
            return failed(observed, _TO_DISPLACE, remedy, evidence, one.unit)
    starters = list(filter(None, (state.get("TriggeredBy", ""), _restarts(state), _at_boot(state))))
    kept = f", and keeps it down against {', '.join(starters)}" if starters else ""
    again = " by systemd-run, since it is transient" if state.get("Transient") == "yes" else ""
    remedy = f"nothing: the sweep stops it{kept}, and starts it again{again}"
    return warned(observed, _TO_DISPLACE, remedy, evidence, one.unit)


def _restarts(state: dict[str, str]) -> str:
    policy = state.get("Restart", "")
    return f"Restart={policy}" if policy not in {"", "no"} else ""


def _at_boot(state: dict[str, str]) -> str:
    return "its start at boot" if state.get("UnitFileState") == "enabled" else ""


async def _found(facts: Facts, unit: str) -> tuple[tuple[str, ...], dict[str, str] | str]:
    """The unit's properties, of the system's manager or else of the account's own; or why there are none."""
    state = await _unit_state(facts, _SYSTEM, unit)
    if isinstance(state, str) or state.get("LoadState") == "not-found":
        own = await _unit_state(facts, _USER, unit)
        if not isinstance(own, str) and own.get("LoadState") != "not-found":
            return _USER, own
    return _SYSTEM, state


async def _unit_state(facts: Facts, manager: tuple[str, ...], unit: str) -> dict[str, str] | str:
    argv = (*manager, "show", "--no-pager", "-p", ",".join(_PROPERTIES), "--", unit)
    ran = await facts.machine.run(argv, _DEADLINE)
    if ran.exit_code != 0:
        return "it did not answer" if ran.exit_code is None else ran.err.strip()[-160:] or f"exit {ran.exit_code}"
    pairs = (line.partition("=") for line in ran.out.splitlines())
    return {name: value for name, _, value in pairs}


CHECK = Check("unit.on-needed-gpu", "no systemd unit holds a needed GPU", _run)
