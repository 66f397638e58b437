"""NCCL's variables mean what the plan thinks: unknown words are ignored in silence, and files add what `env` hides."""

import difflib
from collections.abc import Mapping, Sequence

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.nccl_words import KNOWN, trouble_with

_SYSTEM_FILE = "/etc/nccl.conf"
_EXPECTED = "words that NCCL knows, and nothing that the plan does not say"
_LEFT_BEHIND = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_DEBUG": "TRACE",
}
"""Values that are set for an experiment and forgotten."""


async def _run(facts: Facts) -> Verdict:
    ranks = max((len(one.placement.gpus) for one in facts.plan.deployments), default=0)
    if ranks < 2:
        return skipped("no placement has more than one GPU")
    planned: dict[str, str] = {}
    for source in (facts.plan.engine_env, *(one.env for one in facts.plan.deployments)):
        planned.update({name: value for name, value in source.items() if name.startswith("NCCL_")})
    inherited = {name: value for name, value in facts.environment.items() if name.startswith("NCCL_")}
    files = await _files(facts, {**inherited, **planned})
    evidence = [
        *(f"plan: {name}={value}" for name, value in planned.items()),
        *(f"environment: {name}={value}" for name, value in inherited.items()),
        *(f"{path}: {name}={value}" for path, pairs in files.items() for name, value in pairs.items()),
    ]
    wrong = [f"{name}={value}: {text}" for name, value in planned.items() if (text := _wrong(name, value))]
    if wrong:
        return failed("; ".join(wrong), _EXPECTED, _remedy(planned), evidence, next(iter(planned)))
    hidden = _hidden(planned, inherited, files)
    if hidden:
        remedy = "take it away there, or write it into the plan's `engine: env:`, so that the results say it"
        return warned("; ".join(hidden), _EXPECTED, remedy, evidence)
    count = len(planned) + len(inherited) + sum(map(len, files.values()))
    return passed(f"{count} variables, all known" if count else "none set: NCCL decides", _EXPECTED, evidence)


def _wrong(name: str, value: str) -> str:
    """Why NCCL does not do what the plan says."""
    if name not in KNOWN:
        near = difflib.get_close_matches(name, KNOWN, 1, 0.85)
        return f"NCCL has no such variable; {near[0]} is one" if near else ""
    return trouble_with(name, value)


def _remedy(planned: Mapping[str, str]) -> str:
    if "NCCL_P2P_LEVEL" in planned and trouble_with("NCCL_P2P_LEVEL", planned["NCCL_P2P_LEVEL"]):
        return (
            "NCCL_P2P_LEVEL: SYS for direct copies between all pairs, PHB for those under one socket; NCCL would "
            "ignore this word without saying so and use its own rule"
        )
    return "correct it in the plan's `engine: env:`"


def _hidden(
    planned: Mapping[str, str], inherited: Mapping[str, str], files: Mapping[str, Mapping[str, str]]
) -> Sequence[str]:
    """What has an effect and does not stand in the plan."""
    found = [
        f"{path} sets {name}={value}"
        for path, pairs in files.items()
        for name, value in pairs.items()
        if name not in planned and name not in inherited
    ]
    for name, value in inherited.items():
        if name in planned or name == "NCCL_VERSION":
            continue
        if _LEFT_BEHIND.get(name, "").upper() == value.upper() or name not in _LEFT_BEHIND:
            found.append(f"the environment sets {name}={value}")
    return found


async def _files(facts: Facts, variables: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """NCCL's configuration files, which no `env` shows."""
    home = facts.environment.get("HOME", "/root")
    own = variables.get("NCCL_CONF_FILE") or f"{home}/.nccl.conf"
    found: dict[str, dict[str, str]] = {}
    for path in (own, _SYSTEM_FILE):
        try:
            text = await facts.machine.read_text(path)
        except OSError:
            continue
        lines = [line.partition("#")[0].partition("=") for line in text.splitlines()]
        pairs = {name.strip(): value.strip() for name, sign, value in lines if sign}
        found[path] = {name: value for name, value in pairs.items() if name.startswith("NCCL_")}
    return found


CHECK = Check("nccl.env", "NCCL's variables mean what the plan thinks", _run, needs=())
