"""What changed between two runs beside their figures: plan, environment, and what the servers run with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ddconsole.compare.facts import WHOLE, Section, deployment_facts, flat
from ddconsole.compare.side import ComparedCell, Place, Side
from ddconsole.compare.workload_facts import workload_facts
from ddconsole.core.server_matrix import ALWAYS_SHOWN, FOLLOWS, SIZED

ARGUMENTS = "server"

NOT_BY_PLAN = "not by the plan"
NOT_TOLD = "by the plan; the server does not tell it"
WITHOUT_EFFECT = "by the plan, without effect: both servers tell the same"

_OF_ONE_LAUNCH = ("port", "served", "pid", "dist_init", "random_seed", "uuid", "path_hash", "log_file", "start_time")
"""Parts of the names of arguments that differ between any two launches."""
_OR = " or "
"""Between values that a server told on different launches."""
_JITTER = 0.01
"""The share by which what a cache holds differs between two starts of the same server."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is another in the second run. None: it is not there."""

    about: str
    """`plan`, `environment` or `server`."""
    name: str
    before: str | None
    after: str | None
    where: str = ""
    """Which servers or workloads, in words; empty where it holds for the whole run."""
    note: str = ""
    follows: tuple["Change", ...] = ()
    """What is another only because this is: the plan does not name it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """All of them, and what was looked at."""

    found: tuple[Change, ...]
    equal: Mapping[str, int]
    """By what it is about: how many facts are the same in both."""
    one_sided: tuple[str, ...]
    """What only one of the runs tells: no change can be seen there."""


_Key: TypeAlias = tuple[str, str, str | None, str | None, str]
"""Of a change: about, name, before, after, note."""


@dataclass(slots=True)
class _Tally:
    """Changes that are the same on several servers or workloads are one."""

    changes: dict[_Key, dict[str, None]] = field(default_factory=dict)
    following: dict[_Key, dict[_Key, dict[str, None]]] = field(default_factory=dict)
    """By the change that they follow from, and where."""
    equal: dict[str, set[str]] = field(default_factory=dict)
    one_sided: dict[str, None] = field(default_factory=dict)

    def compare(self, about: str, name: str, before: str | None, after: str | None, where: str = "") -> None:
        """Take a fact of both sides."""
        if before == after:
            self.equal.setdefault(about, set()).add(name)
        else:
            self.tell(about, name, before, after, where)

    def tell(self, about: str, name: str, before: str | None, after: str | None, where: str, note: str = "") -> None:
        """It changed."""
        self.changes.setdefault((about, name, before, after, note), {})[where] = None

    def found(self, everyone: set[str]) -> list[Change]:
        """What follows from a change is under it."""
        return [
            _change(key, where, everyone, _following(self.following.get(key, {}), everyone))
            for key, where in self.changes.items()
        ]


def _following(found: Mapping[_Key, Iterable[str]], everyone: set[str]) -> tuple[Change, ...]:
    """Each argument once: of servers that tell different values the range."""
    by_name: dict[str, list[_Key]] = {}
    for key in found:
        by_name.setdefault(key[1], []).append(key)
    changes = []
    for name, keys in by_name.items():
        before, after = _range([key[2] for key in keys]), _range([key[3] for key in keys])
        where = dict.fromkeys(label for key in keys for label in found[key])
        changes.append(_change((ARGUMENTS, name, before, after, ""), where, everyone))
    return tuple(changes)


def _range(texts: Iterable[str | None]) -> str:
    """`310000 to 400042`; values that are no numbers one after the other."""
    values = list(dict.fromkeys(value for text in texts if text for value in text.split(_OR)))
    try:
        values.sort(key=float)
    except ValueError:
        return _OR.join(values)
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _change(key: _Key, where: Iterable[str], everyone: set[str], follows: tuple[Change, ...] = ()) -> Change:
    about, name, before, after, note = key
    return Change(about, name, before, after, where_text([one for one in where if one], everyone), note, follows)


Pair = tuple[ComparedCell, ComparedCell]


def changes_between(before: Side, after: Side, pairs: Sequence[Pair]) -> Changes:
    """What changed.

    Args:
        before: the first run.
        after: the second one.
        pairs: the cells that are in both.
    """
    tally = _Tally()
    _compare_sections(tally, before.sections, after.sections)
    _compare_plans(tally, before.cells, after.cells)
    _compare_workloads(tally, pairs, same_protocol=_protocol_launches(before) == _protocol_launches(after))
    servers = _servers_of_both(before, after, pairs)
    _compare_servers(tally, before, after, servers)
    everyone = {one.deployment.label for one, _ in servers}
    found = tally.found(everyone)
    told_by_plan = any(one.about == "plan" or (one.about == ARGUMENTS and one.note != NOT_BY_PLAN) for one in found)
    if before.plan_sha256 != after.plan_sha256 and not told_by_plan and before.cells.keys() == after.cells.keys():
        note = "the plan files differ in nothing that a run is made of"
        found.append(Change("plan", "file", before.plan_sha256[:12], after.plan_sha256[:12], note=note))
    order = ("plan", "environment", ARGUMENTS)
    found.sort(key=lambda one: order.index(one.about))
    return Changes(
        tuple(found), {about: len(names) for about, names in tally.equal.items()}, tuple(sorted(tally.one_sided))
    )


def _compare_sections(tally: _Tally, before: Sequence[Section], after: Sequence[Section]) -> None:
    names = dict.fromkeys((one.about, one.name) for one in (*before, *after))
    left = {(one.about, one.name): one.facts for one in before}
    right = {(one.about, one.name): one.facts for one in after}
    for about, name in names:
        old, new = left.get((about, name)), right.get((about, name))
        if old is None or new is None:
            tally.one_sided[name or about] = None
            continue
        for fact in dict.fromkeys((*old, *new)):
            shown = f"{name} {fact}".strip()
            if name not in WHOLE and (fact not in old or fact not in new):
                tally.one_sided[shown] = None
            else:
                tally.compare(about, shown, old.get(fact), new.get(fact))


def _protocol_launches(side: Side) -> str | None:
    return next((one.facts.get("launches") for one in side.sections if one.name == "protocol"), None)


def _servers_of_both(before: Side, after: Side, pairs: Sequence[Pair]) -> list[Pair]:
    """A cell of each server on both sides: of one place where they have one in common, else any."""
    found = {(one.deployment.id, other.deployment.id): (one, other) for one, other in pairs}
    paired = {one.deployment.label for one, _ in found.values()}
    rest = {other.deployment.label: other for other in after.cells.values() if other.deployment.label not in paired}
    for one in before.cells.values():
        other = rest.pop(one.deployment.label, None)
        if other is not None:
            found[one.deployment.id, other.deployment.id] = (one, other)
    return list(found.values())


def _compare_plans(tally: _Tally, before: Mapping[Place, ComparedCell], after: Mapping[Place, ComparedCell]) -> None:
    """Servers, workloads with their axes, and what is left out. A second cell in one place is none of the plan's."""
    old, new = ({place: one for place, one in cells.items() if not place[3]} for cells in (before, after))
    labels = [list(dict.fromkeys(one.deployment.label for one in side.values())) for side in (old, new)]
    gone, added = (
        ", ".join(label for label in mine if label not in others) for mine, others in (labels, reversed(labels))
    )
    tally.compare("plan", "servers", gone or None, added or None)
    facts = workload_facts(old.values()), workload_facts(new.values())
    for workload in dict.fromkeys((*facts[0], *facts[1])):
        axes = facts[0].get(workload), facts[1].get(workload)
        if axes[0] is None or axes[1] is None:
            tally.compare("plan", f"workload {workload}", _axes_text(axes[0]), _axes_text(axes[1]))
            continue
        for name in dict.fromkeys((*axes[0], *axes[1])):
            tally.compare("plan", name, axes[0].get(name), axes[1].get(name), f"workload {workload}")
    same = {workload for workload, axes in facts[0].items() if facts[1].get(workload) == axes}
    _compare_skips(tally, [(one, new[place]) for place, one in old.items() if place in new])
    for place in dict.fromkeys((*old, *new)):
        one, other = old.get(place), new.get(place)
        cell = (one or other) if one is None or other is None else None
        if cell and cell.point.workload in same and all(cell.deployment.label in side for side in labels):
            label = cell.point.label
            tally.compare("plan", "cells", label if one else None, label if other else None, cell.deployment.label)


def _axes_text(axes: Mapping[str, str] | None) -> str | None:
    return (
        None
        if axes is None
        else "; ".join(axes[name] for name in ("concurrency", "rate", "max_tokens") if name in axes)
    )


def _compare_skips(tally: _Tally, pairs: Sequence[Pair]) -> None:
    """What the rules of both plans leave out, by what they say."""
    said: dict[tuple[str, str], list[str]] = {}
    for one, other in pairs:
        if one.left_out != other.left_out:
            words = [f"skipped: {cell.left_out}" if cell.left_out else "measured" for cell in (one, other)]
            said.setdefault((words[0], words[1]), []).append(one.deployment.label)
    for (old, new), labels in said.items():
        for label in labels:
            tally.tell("plan", f"skip rule, {len(labels)} cell{'' if len(labels) == 1 else 's'}", old, new, label)


def _compare_workloads(tally: _Tally, pairs: Iterable[Pair], *, same_protocol: bool) -> None:
    """What of a workload does not decide which cells belong together."""
    for one, other in pairs:
        workload = one.point.workload
        told = {
            "repetitions": (one.point.repetitions, other.point.repetitions),
            "requests": (one.point.requests, other.point.requests),
        }
        if same_protocol:
            told["launches"] = (one.rounds, other.rounds)
        for name, (old, new) in told.items():
            tally.compare("plan", name, str(old), str(new), f"workload {workload}")


def _compare_servers(tally: _Tally, before: Side, after: Side, servers: Sequence[Pair]) -> None:
    for one, other in servers:
        label = one.deployment.label
        old, new = deployment_facts(one.deployment), deployment_facts(other.deployment)
        planned: list[_Key] = []
        for name in dict.fromkeys((*old, *new)):
            tally.compare("plan", name, old.get(name), new.get(name), label)
            if old.get(name) != new.get(name):
                planned.append(("plan", name, old.get(name), new.get(name), ""))
        plan = (_by_argument(flat(one.deployment.args)), _by_argument(flat(other.deployment.args)))
        told = (before.effective.get(one.deployment.id, {}), after.effective.get(other.deployment.id, {}))
        if bool(told[0]) != bool(told[1]):
            tally.one_sided["what the servers tell of themselves"] = None
        changed = _changed_arguments(tally, plan, told)
        planned += [key for key in changed if key[4] not in (NOT_BY_PLAN, WITHOUT_EFFECT)]
        for key in changed:
            cause = _cause(key[1], planned) if key[4] == NOT_BY_PLAN else None
            if cause is None:
                tally.changes.setdefault(key, {})[label] = None
            else:
                tally.following.setdefault(cause, {}).setdefault((*key[:4], ""), {})[label] = None


def _cause(name: str, planned: Sequence[_Key]) -> _Key | None:
    """Of what the plan changed on a server, that from which an argument follows; None where it follows from none."""
    sized = next((key for key in planned if key[:2] == ("plan", "sized for")), None)
    if name in SIZED:
        return sized
    if name not in FOLLOWS:
        return None
    fraction = next((key for key in planned if ALWAYS_SHOWN.get(key[1]) == "memory fraction"), None)
    draft = next((key for key in planned if key[1].startswith("speculati")), None)
    return fraction or draft or sized or next(iter(planned), None)


def _by_argument(flags: Mapping[str, str]) -> dict[str, str]:
    """Flags as the servers call them: `--mem-fraction-static` is `mem_fraction_static`."""
    return {name.lstrip("-").replace("-", "_"): value for name, value in flags.items()}


def _changed_arguments(
    tally: _Tally,
    plan: tuple[Mapping[str, str], Mapping[str, str]],
    told: tuple[Mapping[str, frozenset[str]], Mapping[str, frozenset[str]]],
) -> list[_Key]:
    """Each argument once: with what the servers tell of it, and whether the plan says so."""
    changed: list[_Key] = []
    both_tell = bool(told[0]) and bool(told[1])
    for name in dict.fromkeys((*plan[0], *plan[1], *(_together(told) if both_tell else ()))):
        if any(part in name.lower() for part in _OF_ONE_LAUNCH) and name not in plan[0] and name not in plan[1]:
            continue
        planned = (plan[0].get(name), plan[1].get(name))
        run_with = (told[0].get(name), told[1].get(name)) if both_tell else (None, None)
        if run_with[0] is None or run_with[1] is None:
            # Another build may tell other arguments: what one side leaves out is not known there.
            if run_with != (None, None) and planned[0] == planned[1]:
                tally.one_sided[f"server {name}"] = None
            else:
                changed += _argument(tally, name, planned, NOT_TOLD if both_tell else "")
        elif _is_the_same(name, run_with[0], run_with[1]):
            changed += _argument(tally, name, planned, WITHOUT_EFFECT)
        else:
            values = (_text(run_with[0]), _text(run_with[1]))
            changed += _argument(tally, name, values, "" if planned[0] != planned[1] else NOT_BY_PLAN)
    return changed


def _together(told: tuple[Mapping[str, frozenset[str]], Mapping[str, frozenset[str]]]) -> list[str]:
    return list(dict.fromkeys((*told[0], *told[1])))


def _argument(tally: _Tally, name: str, values: tuple[str | None, str | None], note: str) -> list[_Key]:
    if values[0] != values[1]:
        return [(ARGUMENTS, name, *values, note)]
    tally.equal.setdefault(ARGUMENTS, set()).add(name)
    return []


def _is_the_same(name: str, before: frozenset[str], after: frozenset[str]) -> bool:
    """Whether what the servers told is no change: a value in common, or a figure of memory that is as good as equal."""
    if before & after:
        return True
    if name not in FOLLOWS:
        return False
    try:
        old, new = [float(one) for one in before], [float(one) for one in after]
    except ValueError:
        return False
    return min(new) <= max(old) * (1 + _JITTER) and min(old) <= max(new) * (1 + _JITTER)


def _text(values: frozenset[str]) -> str:
    return _OR.join(sorted(values))


def where_text(labels: Sequence[str], everyone: set[str]) -> str:
    """Names of servers in words: `all servers`, `ddtree-b16`, `ddtree-b16 TP1, ar TP4`."""
    servers = [one for one in labels if one in everyone]
    others = [one for one in labels if one not in everyone]
    if servers and len(servers) == len(everyone):
        return ", ".join([*others, "all servers"])
    methods: dict[str, None] = {}
    for one in servers:
        method = one.rpartition(" TP")[0]
        whole = all(other in servers for other in everyone if other.rpartition(" TP")[0] == method)
        methods[method if whole else one] = None
    return ", ".join([*others, *methods])
