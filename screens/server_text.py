"""The server under a cell in words: deployment, place, launch, and the arguments that are in effect."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core import states as st
from ddconsole.core.command_cost import launch_cost
from ddconsole.core.row_text import clock_time
from ddconsole.core.run_state import LaunchRow
from screens.cell_facts import CellFacts
from screens.hardware_text import gpu_numbers, gpus_in_words
from screens.spans import Line, Role, Span, fitted, labelled, shown

_ARGUMENTS_THAT_MATTER = (
    "max_running_requests",
    "mem_fraction_static",
    "attention_backend",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "context_length",
    "kv_cache_dtype",
    "dtype",
    "tp_size",
    "cuda_graph_max_bs",
)
"""Of the server's own account of its arguments: what moves figures. Speculation is shown beside them."""


def deployment_lines(facts: CellFacts, width: int) -> list[Line]:
    """Which server it is, and the plan's flags for it."""
    deployment = facts.deployment
    text = f"{deployment.label}, sized for {deployment.size} requests ({deployment.id})"
    lines = labelled("server", text, width=width)
    flags = " ".join(_flag(name, value) for name, value in deployment.args.items() if value is not False)
    return lines + labelled("flags", flags or "none of the plan", Role.PLAIN, width=width, most=4)


def _flag(name: str, value: object) -> str:
    if value is True:
        return f"--{name}"
    if isinstance(value, tuple):
        return f"--{name} {' '.join(map(str, value))}"
    return f"--{name} {value}"


def _binding(launch: LaunchRow | None) -> str:
    """What the runner bound the server to, as it wrote it down; before that, what the plan asks for."""
    told = launch.build.get("binding") if launch is not None else None
    if told is None:
        return "to be bound to its node"
    return str(told) if "bound" in str(told) else f"bound to {told}"


def where_lines(facts: CellFacts, width: int) -> list[Line]:
    """GPUs with their node, and what they do while the cell runs."""
    placement = facts.deployment.placement
    if not placement.gpus:
        return labelled("where", "no GPU: on the CPUs", width=width)
    spans: list[Span] = [(" where ", Role.DIM), (gpu_numbers(placement.gpus, facts.host), Role.PLAIN)]
    launch = facts.launch
    if placement.bind == "numa":
        spans.append((shown(_binding(launch)), Role.DIM))
    if launch is not None and launch.port is not None:
        spans.append((f"port {launch.port}", Role.DIM))
    if isinstance(facts.row.state, st.Running) and facts.host is not None:
        spans[2:2] = gpus_in_words(placement.gpus, facts.host, stale=facts.age is not None)
    return [fitted(spans, width)]


def launch_lines(facts: CellFacts, width: int) -> list[Line]:
    """The launch it is, was or will be measured on."""
    launch = facts.launch
    if launch is None:
        costs = launch_cost(facts.state, facts.deployment)
        return labelled("launch", "none yet" + (f"; {costs[0]}" if costs else ""), Role.DIM, width=width)
    parts = [f"launch {launch.number} {launch.state.phase}"]
    if launch.start_seconds is not None:
        parts.append(f"started in {clock_time(launch.start_seconds)}")
    if launch.pid is not None:
        parts.append(f"pid {launch.pid}")
    version = launch.build.get("version")
    if version:
        parts.append(f"version {version}")
    return labelled("launch", ", ".join(parts), width=width)


def arguments_lines(facts: CellFacts, width: int) -> list[Line]:
    """What the server says it runs with, and where that is not what was asked."""
    launch = facts.launch
    if launch is None or not launch.effective:
        return []
    effective = launch.effective
    names = [name for name in effective if name in _ARGUMENTS_THAT_MATTER or name.startswith("speculative")]
    known = [f"{name.replace('_', '-')} {effective[name]}" for name in names if effective[name] not in (None, False)]
    lines = labelled("runs", ", ".join(known), Role.DIM, width=width, most=4) if known else []
    return _differences(facts.deployment.args, effective, width) + lines


def _differences(asked: Mapping[str, Any], effective: Mapping[str, Any], width: int) -> list[Line]:
    found = []
    for name, value in asked.items():
        told = effective.get(name.replace("-", "_"))
        if told is not None and not isinstance(value, tuple) and str(told).lower() != str(value).lower():
            found.append(f"--{name} {value} was asked, {told} is in effect")
    return labelled("differs", "; ".join(found), Role.WARN, width=width) if found else []
