"""The methods of a plan with their `for:` written out: one variant for each combination of values."""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.plan_parts import Method, SpeculativeTemplate
from ddconsole.core.plan_problem import PathOfKeys, PlanFault, did_you_mean
from ddconsole.core.plan_values import ID_RULE, id_problem, whole_number
from ddconsole.core.sweep import EngineArgument, Scalar, Speculative

AXES = ("method", "tensor_parallel", "workload", "kind", "concurrency", "max_tokens")
"""What a cell can be found by, beside the variables of its method."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE = re.compile(r"[a-z_][a-z0-9_]{0,63}")
_NUMBERS = ("budget", "block_size", "draft_tokens")
_NEEDED = {"ddtree": "budget"}
"""Without which a kind of speculation has no meaning."""


@dataclass(frozen=True, slots=True)
class MethodVariant:
    """One method as it is deployed."""

    name: str
    group: str
    """Its name in the plan: of all variants of one `for:`."""
    variables: Mapping[str, Scalar]
    args: Mapping[str, EngineArgument]
    env: Mapping[str, str]
    speculative: Speculative | None


@dataclass(slots=True)
class _Filling:
    """Fills the placeholders of one method for one combination, and collects what is wrong."""

    variables: Mapping[str, Scalar]
    faults: list[PlanFault] = field(default_factory=list)

    def scalar(self, value: Scalar, path: PathOfKeys) -> Scalar:
        """The value with its placeholders filled; a placeholder that is the whole string keeps its type."""
        if not isinstance(value, str) or not self.variables:
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        if whole and whole[1] in self.variables:
            return self.variables[whole[1]]
        for match in _PLACEHOLDER.finditer(value):
            if match[1] not in self.variables:
                do = did_you_mean(match[1], self.variables)
                self.faults.append(PlanFault(path, "E210", f"{match[0]} is no variable of this method", do))
                return value
        return _PLACEHOLDER.sub(lambda match: _written(self.variables[match[1]]), value)

    def argument(self, value: EngineArgument, path: PathOfKeys) -> EngineArgument:
        """As `scalar`, for each of several values."""
        if isinstance(value, tuple):
            return tuple(self.scalar(one, (*path, place)) for place, one in enumerate(value))
        return self.scalar(value, path)

    def speculative(self, template: SpeculativeTemplate, path: PathOfKeys) -> Speculative | None:
        """The typed speculation; None where something is wrong with it."""
        before = len(self.faults)
        values: dict[str, Any] = {"kind": template.kind, "draft_model": template.draft_model}
        for name in _NUMBERS:
            value = getattr(template, name)
            filled = None if value is None else self.scalar(value, (*path, name))
            problem = None if filled is None else whole_number(filled, 1, 65_536)
            if problem is not None and len(self.faults) == before:
                self.faults.append(PlanFault((*path, name), "E210", problem))
            values[name] = filled
        needed = _NEEDED.get(template.kind)
        if needed is not None and values[needed] is None:
            self.faults.append(PlanFault((*path, "kind"), "E210", f"{template.kind} needs {needed}"))
        return None if len(self.faults) > before else Speculative(**values)


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def variants_count(methods: Mapping[str, Method]) -> int:
    """How many variants there are, without making them."""
    return sum(math.prod(len(values) for values in method.for_.values()) for method in methods.values())


def method_variants(methods: Mapping[str, Method]) -> tuple[tuple[MethodVariant, ...], tuple[PlanFault, ...]]:
    """All variants in the order of the plan, and what is wrong with the methods."""
    variants: dict[str, MethodVariant] = {}
    faults: list[PlanFault] = []
    for group, method in methods.items():
        path: PathOfKeys = ("methods", group)
        problems = _template_faults(method, path)
        faults += problems
        if problems:
            continue
        for values in itertools.product(*method.for_.values()):
            filling = _Filling(dict(zip(method.for_, values, strict=True)))
            variant = _variant(group, method, filling, path)
            faults += [one for one in filling.faults if one not in faults]
            if variant.name in variants and not filling.faults:
                where = (*path, "name") if method.name is not None else path
                text = f'the name "{variant.name}" is taken by methods.{variants[variant.name].group}'
                doubled = PlanFault(where, "E203", text, "put every variable of for: into the name")
                faults += [doubled] if doubled not in faults else []
            variants.setdefault(variant.name, variant)
    return tuple(variants.values()), tuple(faults)


def _template_faults(method: Method, path: PathOfKeys) -> list[PlanFault]:
    faults: list[PlanFault] = []
    for name in method.for_:
        if not _VARIABLE.fullmatch(name):
            faults.append(
                PlanFault((*path, "for", name), "E203", f'"{name}" is no name of a variable', "use a-z 0-9 _")
            )
        elif name in {*AXES, "because"}:
            faults.append(PlanFault((*path, "for", name), "E203", f'"{name}" is an axis already', "use another name"))
    if method.for_ and method.name is None:
        first = next(iter(method.for_))
        do = f'add name: "{path[-1]}-{{{first}}}"'
        faults.append(PlanFault((*path, "for"), "E114", "for: needs a name with its variables", do))
    if method.name is not None and not method.for_:
        do = "the method's key is its name"
        faults.append(PlanFault((*path, "name"), "E114", "name: belongs to a method with for:", do))
    return faults


def _variant(group: str, method: Method, filling: _Filling, path: PathOfKeys) -> MethodVariant:
    name = group
    if method.name is not None:
        name = _written(filling.scalar(method.name, (*path, "name")))
        problem = id_problem(name)
        if problem is not None and not filling.faults:
            filling.faults.append(PlanFault((*path, "name"), "E203", problem, f"allowed: {ID_RULE}"))
    template = method.speculative
    return MethodVariant(
        name=name,
        group=group,
        variables=filling.variables,
        args={key: filling.argument(value, (*path, "args", key)) for key, value in method.args.items()},
        env={key: _written(filling.scalar(value, (*path, "env", key))) for key, value in method.env.items()},
        speculative=filling.speculative(template, (*path, "speculative")) if template else None,
    )
