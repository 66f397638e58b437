"""What is known of a run beside its figures: plan, environment, and what its servers run with."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.readings import Reading
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Deployment, to_json
from ddconsole.engines.environment import is_secret_name
from ddconsole.report.comparability import Environment

Facts: TypeAlias = Mapping[str, str]
"""Values by name, as text."""

PLAN = "plan"
ENVIRONMENT = "environment"

WHOLE = frozenset({"engine variable", "package", "engine file", "model file", "build", "texts"})
"""Sections of which a run that knows any of it knows all: what it lacks there is not there."""

_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of `telemetry.jsonl` in which its first sample must end."""


@dataclass(frozen=True, slots=True)
class Section:
    """Facts of one kind."""

    about: str
    """`PLAN` or `ENVIRONMENT`."""
    name: str
    """In front of each fact's name; empty where the names say it all."""
    facts: Facts


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What lies beside the journal, as far as it is there."""

    submission: Mapping[str, Any]
    texts: Mapping[str, Any]
    host: HostState | None


NO_FILES = RunFiles({}, {}, None)


def files_of(folder: Path) -> RunFiles:
    """Read them; what is missing or cannot be understood is left out: nothing but facts hangs on it."""
    return RunFiles(_json_of(folder / "submission.json"), _json_of(folder / "texts.json"), _first_sample(folder))


def sections_of(state: RunState, environment: Environment | None, files: RunFiles) -> tuple[Section, ...]:
    """All facts of a run that hold for the whole of it; a section of which nothing is known is left out.

    Args:
        state: the fold of its journal.
        environment: driver, build and model of the attempts that count; None where none does.
        files: what lies beside the journal.
    """
    carried: Mapping[str, Any] = json.loads(environment.parts) if environment else {}
    sections = [
        Section(PLAN, "", _plan_facts(state, files.submission)),
        Section(PLAN, "protocol", flat(state.created.protocol if state.created else {})),
        Section(ENVIRONMENT, "", _host_facts(state, carried, files)),
        *_engine_sections(state, _part(carried, "build")),
    ]
    if files.texts:
        sections.append(Section(PLAN, "texts", _digests(files.texts)))
    model = _model_facts(state, _part(carried, "model"))
    if model:
        sections.append(Section(ENVIRONMENT, "model", model))
    return tuple(sections)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values by dotted names, as text; what is not told is left out, and secrets are not shown."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = f"secret {_digest(value)}" if is_secret_name(name) else text_of(value)
    return found


def flat_arguments(values: Mapping[str, Any]) -> dict[str, str]:
    """As `flat`, of what a server tells of its arguments: one that is set to nothing is told, as `none`."""
    return flat({name: "none" if value is None else value for name, value in values.items()})


def text_of(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, str):
        return value
    return json.dumps(to_json(value), ensure_ascii=False, sort_keys=True)


def deployment_facts(deployment: Deployment) -> dict[str, str]:
    """What a plan says of one server, but its arguments."""
    place = deployment.placement
    facts = {
        "sized for": str(deployment.size),
        "GPUs": ",".join(map(str, place.gpus)) or "none",
        "bound to": place.bind,
    }
    facts |= {f"speculation {name}": text for name, text in flat(to_json(deployment.speculative) or {}).items()}
    return facts | {f"variable {name}": value for name, value in flat(deployment.env).items()}


def _plan_facts(state: RunState, submission: Mapping[str, Any]) -> Facts:
    created = state.created
    facts = {"name": created.plan_name, "baseline": created.baseline} if created else {}
    engine = submission.get("engine")
    if isinstance(engine, Mapping):
        facts |= {f"engine {name}": text for name, text in flat(engine).items() if name != "kind"}
    model = submission.get("model")
    if isinstance(model, Mapping):
        facts |= {f"model {name}": text for name, text in flat(model).items()}
    return facts


def _host_facts(state: RunState, carried: Mapping[str, Any], files: RunFiles) -> Facts:
    facts: dict[str, str] = {}
    if state.created is not None:
        facts = {"host": state.created.host, "engine": state.created.engine, "ddconsole": state.created.version}
    if files.host is not None:
        facts |= _machine_facts(files.host)
    if carried.get("driver") is not None:
        facts["driver"] = str(carried["driver"])
    return facts


def _machine_facts(host: HostState) -> dict[str, str]:
    told: dict[str, Reading[Any]] = {
        "machine": host.hostname,
        "kernel": host.kernel,
        "driver": host.driver,
        "CUDA of the driver": host.cuda_driver,
        "CPUs": host.cpu_count,
    }
    facts = {name: str(reading.value) for name, reading in told.items() if reading.known}
    facts |= _of_all_gpus("GPUs", [gpu.name for gpu in host.gpus])
    facts |= _of_all_gpus("GPU power limit in W", [gpu.power_limit for gpu in host.gpus])
    facts |= _of_all_gpus("GPU UUIDs", [gpu.uuid for gpu in host.gpus])
    return facts


def _of_all_gpus(name: str, readings: Sequence[Reading[Any]]) -> dict[str, str]:
    """`8 x NVIDIA H200`; nothing where any GPU does not tell."""
    if not readings or not all(one.known for one in readings):
        return {}
    values = [f"{one.value:g}" if isinstance(one.value, float) else str(one.value) for one in readings]
    counted = {value: values.count(value) for value in values}
    return {name: ", ".join(value if number == 1 else f"{number} x {value}" for value, number in counted.items())}


def _engine_sections(state: RunState, carried: Mapping[str, Any]) -> list[Section]:
    """What was asked of the engine before its launches; where that was not kept, what the attempts carry of it."""
    asked = state.engine
    build = _without_digests({**carried, **_part(asked, "build")})
    sections = [Section(ENVIRONMENT, "build", build)] if build else []
    for part, name in (("environment", "engine variable"), ("packages", "package"), ("files", "engine file")):
        value = _part(asked, part) if part in asked else carried.get(part)
        if isinstance(value, Mapping):
            sections.append(Section(ENVIRONMENT, name, flat(value)))
        elif value is not None:
            sections.append(Section(ENVIRONMENT, f"{name}s", {"hash": short_hash(str(value))}))
    return sections


def _without_digests(build: Mapping[str, Any]) -> Facts:
    return flat({name: value for name, value in build.items() if name not in ("packages", "files", "environment")})


def _model_facts(state: RunState, carried: Mapping[str, Any]) -> Facts:
    """The model's files by a hash over all of them: their names and times do not count."""
    marks = _part(state.engine, "model")
    if marks:
        return {"files": _digest(marks)}
    in_the_plan = ("path", "draft", "source")
    told = {name: value for name, value in carried.items() if name not in in_the_plan}
    return {name: short_hash(text) for name, text in flat(told).items()}


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


def short_hash(text: str) -> str:
    """The beginning of a long hash, which is enough to see that it is another one."""
    return text[:12] if len(text) >= 32 and set(text) <= set("0123456789abcdef") else text


def _digests(texts: Mapping[str, Any]) -> Facts:
    """One hash for each prompt set and script."""
    found: dict[str, str] = {}
    for kind in ("prompts", "scripts"):
        found |= {name: _digest(one) for name, one in _part(texts, kind).items()}
    return found


def _digest(value: Any) -> str:
    raw = json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:12]


def _json_of(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _first_sample(folder: Path) -> HostState | None:
    for name in ("telemetry.jsonl", "telemetry.jsonl.part"):
        try:
            with (folder / name).open("rb") as file:
                return host_state_from_json(json.loads(file.readline(_LONGEST_LINE)))
        except (OSError, ValueError, RecursionError):
            continue
    return None
