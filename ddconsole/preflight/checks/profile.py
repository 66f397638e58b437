"""The host is what it was when it was recorded as good."""

import time
from collections.abc import Mapping
from typing import Any

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.profile import CARD_SETTINGS, build_key, cards_by_uuid, profile_of

_NONE = "no profile was recorded: `ddconsole preflight PLAN --record` does, when the host is good"
_AGAIN = "if it is meant, record it anew: `ddconsole preflight PLAN --record`"
_NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count")


async def _cards(facts: Facts) -> Verdict:
    if facts.profile is None:
        return skipped(_NONE)
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    before, now = cards_by_uuid(facts.profile), cards_by_uuid(profile_of(facts, 0.0))
    blind = [gpu.index for gpu in facts.host.gpus if not gpu.uuid.known]
    if blind:
        return unknown(f"GPU {', '.join(map(str, blind))} does not tell its UUID")
    evidence = [_recorded(facts.profile), *(f"{_where(card)}: {uuid}" for uuid, card in now.items())]
    expected = "the same cards in the same slots"
    gone = [card for uuid, card in before.items() if uuid not in now]
    if gone:
        observed = ", ".join(f"{_where(card)} is gone" for card in gone)
        return failed(observed, expected, f"is this the host that is meant? {_AGAIN}", evidence, _where(gone[0]))
    new = [card for uuid, card in now.items() if uuid not in before]
    moved = [
        f"{_where(before[uuid])} is now {_where(card)}"
        for uuid, card in now.items()
        if uuid in before and _where(before[uuid]) != _where(card)
    ]
    if new or moved:
        observed = "; ".join([*moved, *(f"{_where(card)} is new" for card in new)])
        return warned(observed, expected, f"look at the plan's placement; {_AGAIN}", evidence)
    return passed(f"the same {len(now)} cards", expected, evidence)


async def _settings(facts: Facts) -> Verdict:
    if facts.profile is None:
        return skipped(_NONE)
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    now = profile_of(facts, 0.0)
    differences = _differences(facts.profile, now)
    evidence = [_recorded(facts.profile), *differences]
    expected = "driver, kernel and cards' settings as recorded"
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        return warned(differences[0] + more, expected, _AGAIN, evidence)
    return passed(f"as {_recorded(facts.profile)}", expected, evidence)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed, in words. What one of the two does not tell is no change."""
    found = [
        f"{name}: {before[name]} then, {now[name]} now"
        for name in ("driver", "kernel", "hostname")
        if before.get(name) and now.get(name) and before[name] != now[name]
    ]
    cards = cards_by_uuid(now)
    for uuid, card in cards_by_uuid(before).items():
        other = cards.get(uuid)
        for name, label in CARD_SETTINGS.items() if other is not None else ():
            then, today = card.get(name), other.get(name) if other else None
            if then is not None and today is not None and then != today:
                found.append(f"GPU {card.get('index')}: {label} {then} then, {today} now")
    return found


async def _topology(facts: Facts) -> Verdict:
    if facts.profile is None:
        return skipped(_NONE)
    before, now = facts.profile.get("pairs") or {}, profile_of(facts, 0.0)["pairs"]
    both = {pair for pair in before if before[pair] and now.get(pair)}
    if not both:
        one = facts.host is not None and len(facts.host.gpus) < 2
        return skipped("one GPU") if one else unknown("the paths between GPUs are not known now")
    changed = [
        f"GPU {pair}: {before[pair]} then, {now[pair]} now" for pair in sorted(both) if before[pair] != now[pair]
    ]
    evidence = [_recorded(facts.profile), *changed]
    expected = "the paths between GPUs as recorded"
    if changed:
        remedy = f"cards were moved, or firmware was changed; {_AGAIN}"
        return failed(f"{len(changed)} of {len(both)} pairs, {changed[0]}", expected, remedy, evidence)
    return passed(f"{len(both)} pairs as recorded", expected, evidence)


async def _build(facts: Facts) -> Verdict:
    if facts.profile is None:
        return skipped(_NONE)
    before, now = build_key(facts.profile.get("build")), build_key(facts.build)
    if not before:
        return skipped("the profile does not know the engine's build")
    if not now:
        return unknown("the engine does not tell its build now", "try its interpreter by hand")
    evidence = [_recorded(facts.profile), f"then: {before}", f"now: {now}"]
    if before != now:
        remedy = f"results of the two do not compare; {_AGAIN}"
        return warned(f"the engine was {before}, it is {now}", "the build that was recorded", remedy, evidence)
    return passed(now, "the build that was recorded", evidence)


async def _smoke(facts: Facts) -> Verdict:
    """Whether launches have shown that this build serves at all: the baseline, and each way of speculating."""
    if facts.engine is None or not facts.plan.deployments:
        return skipped("no deployment of an engine that is known")
    if facts.simulated or facts.engine.build_command(facts.plan.engine_command) is None:
        return skipped("the engine does not tell its build")
    key = build_key(facts.build)
    if not key:
        return unknown("the engine does not tell its build", "try its interpreter by hand")
    wanted = {one.speculative.kind if one.speculative else "plain" for one in facts.plan.deployments}
    seen = {str(one.get("how")): one for one in facts.smoke if one.get("build") == key}
    evidence = [f"build: {key}", *(f"{how}: run {one.get('run')} had tokens" for how, one in seen.items())]
    expected = "a launch of this build that served tokens, of each kind"
    missing = sorted(wanted - set(seen))
    if missing:
        observed = f"build {key} has not served a token yet with: {', '.join(missing)}"
        remedy = "`ddconsole smoke PLAN` starts one of each for 16 tokens; else the first launch of each is the test"
        return warned(observed, expected, remedy, evidence)
    return passed(f"{', '.join(sorted(wanted))} with build {key}", expected, evidence)


def _where(card: Mapping[str, Any]) -> str:
    return f"GPU {card.get('index')} at {card.get('pci')}"


def _recorded(profile: Mapping[str, Any]) -> str:
    return f"recorded {time.strftime('%Y-%m-%d %H:%M', time.localtime(float(profile.get('at', 0))))}"


CHECKS = (
    Check("profile.cards", "the same cards in the same slots as recorded", _cards, _NEEDS, tier=Tier.STANDARD),
    Check(
        "profile.settings",
        "driver, kernel and cards are set as recorded",
        _settings,
        _NEEDS,
        ("comparison",),
        tier=Tier.STANDARD,
    ),
    Check(
        "profile.topology",
        "GPUs reach each other as recorded",
        _topology,
        _NEEDS,
        ("comparison",),
        tier=Tier.STANDARD,
    ),
    Check(
        "profile.build", "the engine is the build that was recorded", _build, blocks=("comparison",), tier=Tier.STANDARD
    ),
    Check(
        "engine.smoke",
        "this build has served tokens with every method of the plan",
        _smoke,
        blocks=("comparison",),
        tier=Tier.STANDARD,
    ),
)
