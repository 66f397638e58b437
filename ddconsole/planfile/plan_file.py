"""A plan file read and checked: the plan, or everything that is wrong with it by line and field."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ddconsole.core.plan import FAULTS, Plan
from ddconsole.core.plan_checks import argument_mappings, flag_faults
from ddconsole.core.plan_problem import (
    PathOfKeys,
    PlanError,
    PlanFault,
    PlanProblem,
    did_you_mean,
    field_name,
)
from ddconsole.core.plan_values import shown
from ddconsole.planfile.known_keys import known_keys
from ddconsole.planfile.shipped import shipped_folder, shipped_names
from ddconsole.planfile.yaml_nodes import LARGEST, PlacedData, decode_plan, read_yaml

EngineFlags = Mapping[str, frozenset[str]]
"""Each engine's kind with the flags that it sets itself (`Engine.owned_flags`)."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan with the text it came from."""

    plan: Plan
    text: str
    sha256: str
    """Of the file's bytes."""
    path: Path


def load_plan(path: Path, engines: EngineFlags | None = None) -> LoadedPlan:
    """Read and check a plan file.

    Args:
        path: the file.
        engines: the engines there are; without it their kinds and own flags are not checked.

    Raises:
        PlanError: it cannot be read, or is no possible plan.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
            size = file.seek(0, 2) if len(raw) > LARGEST else len(raw)
    except OSError as problem:
        text = f"cannot be read: {problem.strerror or problem}"
        raise PlanError([PlanProblem("E100", str(path), 0, 0, "", text)]) from problem
    if size > LARGEST:
        text = f"{size:,} bytes, a plan has {LARGEST:,} at most"
        raise PlanError([PlanProblem("E111", path.name, 0, 0, "", text)])
    text = decode_plan(raw, path.name)
    return LoadedPlan(parse_plan(text, path.name, engines), text, hashlib.sha256(raw).hexdigest(), path)


def find_plan(name_or_path: str) -> Path:
    """The file of a plan: a path, or the name of a plan that ships.

    Raises:
        PlanError: there is none.
    """
    path = Path(name_or_path).expanduser()
    if path.is_file() or "/" in name_or_path or path.suffix in {".yaml", ".yml"}:
        return path
    names = shipped_names()
    if name_or_path in names:
        return shipped_folder() / f"{name_or_path}.yaml"
    text = f'neither a file nor a plan that ships: "{name_or_path}"'
    raise PlanError([PlanProblem("E100", "plan", 0, 0, "", text, did_you_mean(name_or_path, names))])


def parse_plan(text: str, file: str, engines: EngineFlags | None = None) -> Plan:
    """A plan from its text.

    Args:
        text: the YAML.
        file: its name, for errors.
        engines: as for `load_plan`.

    Raises:
        PlanError: it is no possible plan.
    """
    placed = read_yaml(text, file)
    if not isinstance(placed.data, Mapping):
        what = f"a plan is a mapping of keys, this is {shown(placed.data)}"
        raise PlanError(
            [PlanProblem("E113", file, placed.place_of(()).line, 1, "", what, "begin with name: and host:")]
        )
    try:
        plan = Plan.model_validate(placed.data)
    except ValidationError as refused:
        faults = _without_echoes([fault for error in refused.errors() for fault in _faults(error, placed.data)])
    else:
        faults = _engine_faults(plan, engines) if engines is not None else []
        if not faults:
            return plan
    raise PlanError(_problems(faults, placed, file))


def _engine_faults(plan: Plan, engines: EngineFlags) -> list[PlanFault]:
    if plan.engine.kind not in engines:
        text = f'there is no engine "{plan.engine.kind}"'
        return [PlanFault(("engine", "kind"), "E210", text, did_you_mean(plan.engine.kind, engines))]
    owned = frozenset(flag.lstrip("-") for flag in engines[plan.engine.kind])
    return [
        fault
        for path, args in argument_mappings(plan)
        for name, value in args.items()
        for fault in flag_faults((*path, name), name, value, owned)
    ]


def _problems(faults: list[PlanFault], placed: PlacedData, file: str) -> Iterator[PlanProblem]:
    """Faults with their places. An unknown or doubled key names itself; all others have the field in front."""
    for fault in faults:
        path = _existing(fault.path, placed)
        place = placed.place_of(path, key=fault.code in {"E114", "E202", "E203", "E220", "E221"})
        name = field_name(fault.path if fault.path == path else path)
        of_itself = not name or fault.code == "E114"
        text = fault.text if of_itself else f"{name}: {fault.text}"
        yield PlanProblem(fault.code, file, place.line, place.column, name, text, fault.do)


def _without_echoes(faults: list[PlanFault]) -> list[PlanFault]:
    """Without the missing keys that are there under a misspelt name: one mistake, one error."""
    meant = {f"{fault.path[:-1]} {fault.do}" for fault in faults if fault.text.startswith("unknown key")}
    return [fault for fault in faults if f"{fault.path} did you mean {_missing_key(fault)}?" not in meant]


def _missing_key(fault: PlanFault) -> str:
    return fault.text.split('"')[1] if fault.text.startswith("missing key") else ""


def _existing(path: PathOfKeys, placed: PlacedData) -> PathOfKeys:
    """The longest part of the path that is in the file: a scalar that stands for a list of one has no index."""
    while path and path not in placed.values:
        path = path[:-1]
    return path


def _faults(error: ErrorDetails, data: Any) -> Iterator[PlanFault]:
    """One error of pydantic as faults; an error of the plan as a whole carries several."""
    context = error.get("ctx", {})
    if error["type"] == FAULTS:
        yield from context["faults"]
        return
    path, is_key = _path_in_data(error["loc"], data)
    if error["type"] == "plan_value":
        code = "E203" if is_key and context["code"] == "E113" else context["code"]
        yield PlanFault(path, code, context["text"], context["do"])
        return
    yield _builtin_fault(error, path, data)


def _path_in_data(location: tuple[int | str, ...], data: Any) -> tuple[PathOfKeys, bool]:
    """A pydantic location without what pydantic adds to it (kinds of unions, names of parts), and if it is a key."""
    path: list[str | int] = []
    for part in location:
        listed = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if listed or (isinstance(data, Mapping) and part in data):
            data = data[part]
            path.append(part)
    return tuple(path), bool(location) and location[-1] == "[key]"


def _builtin_fault(error: ErrorDetails, path: PathOfKeys, data: Any) -> PlanFault:
    kind, context = error["type"], error.get("ctx", {})
    match kind:
        case "extra_forbidden":
            key = str(path[-1])
            return PlanFault(path, "E114", f'unknown key "{key}"', did_you_mean(key, known_keys(path[:-1], data)))
        case "missing":
            where = f" in {field_name(path)}" if path else ""
            return PlanFault(path, "E114", f'missing key "{error["loc"][-1]}"{where}')
        case "union_tag_not_found":
            return PlanFault(path, "E114", f'missing key "kind" in {field_name(path)}', _KINDS)
        case "union_tag_invalid":
            do = did_you_mean(str(context["tag"]), _words(str(context["expected_tags"])))
            return PlanFault((*path, "kind"), "E210", f'there is no kind "{context["tag"]}"', do)
        case "literal_error":
            return PlanFault(path, "E210", f"must be {context['expected']}, got {shown(error['input'])}")
        case "model_type" | "model_attributes_type" | "mapping_type" | "dict_type":
            return PlanFault(path, "E113", f"expected a mapping, got {shown(error['input'])}", _example(path))
        case _:
            return PlanFault(path, "E113", f"{error['msg']}, got {shown(error['input'])}")


def _example(path: PathOfKeys) -> str:
    """What to write in place of something that is no mapping; empty where no example is known."""
    key = str(path[-1]) if path else ""
    return f"write {key}: {_EXAMPLES[key]}" if key in _EXAMPLES else ""


_EXAMPLES: Mapping[str, str] = {
    "agent": "{python: /usr/bin/python3}",
    "engine": "{kind: sglang, python: /opt/venv/bin/python}",
    "env": "{NAME: value}",
    "expect": "{gpus: 8}",
    "model": "{path: /models/NAME}",
    "pcie": "{gen: 5, width: 16}",
    "protocol": "{launches: 3}",
    "proxmox": "{host: pve1}",
    "prune": "{below: 0.8}",
    "repeat": "{until: 0.03, most: 10}",
    "sampling": "{temperature: 0}",
    "slo": "{ttft: 500ms}",
    "warmup_until": "{agree: 0.05, most: 5}",
}
_KINDS = "write kind: single, closed-loop or conversation"


def _words(quoted: str) -> list[str]:
    return [word.strip(" '") for word in quoted.split(",")]
