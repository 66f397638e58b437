"""What is wrong with a plan whose single values are possible: names that do not meet, flags, secrets, numbers of cells.

Every check gives faults with the path of the value that is wrong, so that all of them are told at once.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ddconsole.core.placement import placement_problem
from ddconsole.core.plan_methods import AXES, MethodVariant, method_variants, variants_count
from ddconsole.core.plan_parts import SkipRule
from ddconsole.core.plan_problem import PathOfKeys, PlanFault, did_you_mean
from ddconsole.core.plan_secrets import secret_reason
from ddconsole.core.plan_values import same_scalar, shown
from ddconsole.core.plan_workloads import ClosedLoopWorkload, planned_points
from ddconsole.core.sweep import EngineArgument, Scalar, WorkloadPoint

if TYPE_CHECKING:
    from ddconsole.core.plan import Plan

MOST_CELLS = 10_000

OWNED_FLAGS = frozenset(
    {"alias", "host", "model", "model-path", "port", "served-model-name", "tensor-parallel-size", "tp", "tp-size"}
)
"""Flags that ddconsole sets itself for every engine; each engine adds its own."""

_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-[0-9.]+([eE][-+]?[0-9]+)?")


def faults_of(plan: "Plan") -> list[PlanFault]:
    """Everything that is wrong with the plan as a whole, nothing if it can be expanded."""
    count = cells_count(plan)
    if count > MOST_CELLS:
        return [PlanFault((), "E211", f"plan expands to {_spaced(count)} cells", f"limit {_spaced(MOST_CELLS)}")]
    variants, faults = method_variants(plan.methods)
    found = [*faults, *_workload_faults(plan), *_parallel_faults(plan), *_protocol_faults(plan)]
    found += _argument_faults(plan)
    if faults:
        return found
    names = [one.name for one in variants]
    if plan.baseline not in names:
        text = f'there is no method "{plan.baseline}"'
        found.append(PlanFault(("baseline",), "E210", text, did_you_mean(plan.baseline, names)))
    found += _skip_faults(plan, variants)
    return found


def cells_count(plan: "Plan") -> int:
    """How many cells the plan has, skipped ones too, without making them."""
    points = sum(workload.points_count for workload in plan.workloads.values())
    return variants_count(plan.methods) * len(plan.tensor_parallel) * points


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _workload_faults(plan: "Plan") -> Iterator[PlanFault]:
    for name in ("methods", "workloads"):
        if not getattr(plan, name):
            yield PlanFault((name,), "E210", "is empty", "a plan has one at least")
    for name, workload in plan.workloads.items():
        if not isinstance(workload, ClosedLoopWorkload) or workload.requests is None:
            continue
        most = max(workload.concurrency)
        if workload.requests < most:
            text = f"{workload.requests} requests can never be {most} in flight"
            yield PlanFault(("workloads", name, "requests"), "E210", text, f"give {most} at least")


def _parallel_faults(plan: "Plan") -> Iterator[PlanFault]:
    for size, gpus in plan.placement.gpus.items():
        path: PathOfKeys = ("placement", size)
        if size not in plan.tensor_parallel:
            sizes = ", ".join(map(str, plan.tensor_parallel))
            yield PlanFault(path, "E210", f"{size} is no tensor-parallel size of this plan", f"there is {sizes}")
        problem = placement_problem(gpus, size, plan.expect.gpus)
        if problem is not None:
            yield PlanFault(path, "E210", problem)
    if plan.expect.gpus is not None and plan.placement.used:
        for place, size in enumerate(plan.tensor_parallel):
            if size > plan.expect.gpus:
                text = f"size {size} needs more GPUs than expect.gpus has ({plan.expect.gpus})"
                yield PlanFault(("tensor_parallel", place), "E210", text)


# --- flags, environment, secrets -------------------------------------------------------------------------------


def _protocol_faults(plan: "Plan") -> Iterator[PlanFault]:
    launches, repeat = plan.protocol.launches, plan.protocol.repeat
    if repeat is not None and repeat.most < launches:
        text = f"{repeat.most} launches at most, but protocol.launches has {launches} measured"
        do = f"write most: {launches} or more, or launches: {repeat.most} or fewer"
        yield PlanFault(("protocol", "repeat", "most"), "E210", text, do)


def _argument_faults(plan: "Plan") -> list[PlanFault]:
    faults: list[PlanFault] = []
    for path, args in argument_mappings(plan):
        for name, value in args.items():
            faults += flag_faults((*path, name), name, value, OWNED_FLAGS)
    environments: list[tuple[PathOfKeys, Mapping[str, str]]] = [(("engine", "env"), plan.engine.env)]
    environments += [(("methods", name, "env"), one.env) for name, one in plan.methods.items()]
    for path, environment in environments:
        for name, text in environment.items():
            faults += _environment_faults((*path, name), name, text)
    commands = (("engine", "command"), plan.engine.command), (("notify",), plan.notify)
    for path, words in commands:
        for place, word in enumerate(words or ()):
            if secret_reason("", word):
                faults.append(PlanFault((*path, place), "E220", "the value looks like a secret", _SECRET_ADVICE))
    return faults


def argument_mappings(plan: "Plan") -> list[tuple[PathOfKeys, Mapping[str, EngineArgument]]]:
    """All mappings of engine flags in a plan, with their paths."""
    mappings: list[tuple[PathOfKeys, Mapping[str, EngineArgument]]] = [(("engine", "args"), plan.engine.args)]
    mappings += [(("methods", name, "args"), one.args) for name, one in plan.methods.items()]
    mappings += [(("workloads", name, "server_args"), one.server_args) for name, one in plan.workloads.items()]
    return mappings


_SECRET_ADVICE = "a plan is stored and published: set it in the environment of the host's agent"  # noqa: S105  # advice


def flag_faults(path: PathOfKeys, name: str, value: EngineArgument, owned: frozenset[str]) -> list[PlanFault]:
    """What is wrong with one engine flag: its name, who owns it, its value, a secret in it."""
    bare = name.lstrip("-").split("=")[0]
    if bare in owned:
        return [PlanFault(path, "E202", f"the plan may not set --{bare}", "owned by ddconsole")]
    if name.startswith("-"):
        return [PlanFault(path, "E202", f'"{name}" begins with a dash', f"write {bare}: without dashes")]
    if not _FLAG.fullmatch(name):
        return [PlanFault(path, "E202", f'"{name}" is not the name of a flag', "give its value after the colon")]
    reason = secret_reason(name, value)
    if reason is not None:
        return [PlanFault(path, "E220", reason, _SECRET_ADVICE)]
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, str) and "\0" in one:
            return [PlanFault(path, "E202", "holds a NUL character", "remove it")]
        if isinstance(one, str) and one.startswith("-") and not _NUMBER.fullmatch(one):
            other = one.lstrip("-").split("=")[0]
            if other in owned:
                return [PlanFault(path, "E202", f"the plan may not set --{other}", "owned by ddconsole")]
            return [PlanFault(path, "E202", f'the value "{one}" begins with a dash', "name each flag on its own line")]
    return []


def _environment_faults(path: PathOfKeys, name: str, value: str) -> list[PlanFault]:
    if not _VARIABLE.fullmatch(name):
        return [PlanFault(path, "E221", f'"{name}" is not the name of an environment variable', "use A-Z 0-9 _")]
    if "\0" in value:
        return [PlanFault(path, "E221", "holds a NUL character", "remove it")]
    reason = secret_reason(name, value)
    return [PlanFault(path, "E220", reason, _SECRET_ADVICE)] if reason else []


# --- skip rules ------------------------------------------------------------------------------------------------

Axes = Mapping[str, tuple[Scalar, ...]]


def axes_of(variant: MethodVariant, tensor_parallel: int, point: WorkloadPoint) -> Axes:
    """What a cell can be found by. A method answers to its own name and to that of its `for:` in the plan."""
    axes: dict[str, tuple[Scalar, ...]] = {name: (value,) for name, value in variant.variables.items()}
    axes["method"] = (variant.name, variant.group)
    axes["tensor_parallel"] = (tensor_parallel,)
    axes["workload"] = (point.workload,)
    axes["kind"] = (point.kind,)
    axes["concurrency"] = (point.concurrency,)
    axes["max_tokens"] = (point.max_tokens,)
    if point.rate is not None:
        axes["rate"] = (point.rate,)
    return axes


def _skip_faults(plan: "Plan", variants: tuple[MethodVariant, ...]) -> list[PlanFault]:
    if not plan.skip:
        return []
    points = [
        planned.point
        for name, workload in plan.workloads.items()
        for planned in planned_points(name, workload, plan.sampling, plan.protocol)
    ]
    cells = [axes_of(variant, size, point) for variant in variants for size in plan.tensor_parallel for point in points]
    known = _known_values(cells)
    faults: list[PlanFault] = []
    for place, rule in enumerate(plan.skip):
        found = _rule_faults(rule, ("skip", place), known)
        if not found and not any(rule.matches(axes) for axes in cells):
            found = [PlanFault(("skip", place), "E210", "the rule matches no cell", "no cell has all of its values")]
        faults += found
    return faults


def _known_values(cells: list[Axes]) -> dict[str, list[Scalar]]:
    known: dict[str, dict[tuple[type, Scalar], Scalar]] = {name: {} for name in AXES}
    for axes in cells:
        for name, values in axes.items():
            known.setdefault(name, {}).update({(type(one), one): one for one in values})
    return {name: list(values.values()) for name, values in known.items()}


def _rule_faults(rule: SkipRule, path: PathOfKeys, known: Mapping[str, list[Scalar]]) -> list[PlanFault]:
    faults: list[PlanFault] = []
    for name, values in rule.match.items():
        if name not in known:
            text = f'unknown axis "{name}"'
            faults.append(PlanFault((*path, name), "E114", text, did_you_mean(name, known)))
            continue
        for place, value in enumerate(values):
            if not any(same_scalar(value, other) for other in known[name]):
                text = f"{name} is never {shown(value)}"
                faults.append(PlanFault((*path, name, place), "E210", text, _what_there_is(value, known[name])))
    return faults


def _what_there_is(value: Any, known: list[Scalar]) -> str:
    if isinstance(value, str):
        return did_you_mean(value, [one for one in known if isinstance(one, str)])
    return f"there is {', '.join(str(one) for one in known)}"
