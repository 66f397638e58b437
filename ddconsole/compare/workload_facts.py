"""What a plan asks of its servers: the values on the axes of each workload."""

from collections.abc import Iterable, Mapping

from ddconsole.compare.facts import Facts, flat
from ddconsole.compare.side import ComparedCell
from ddconsole.core.sweep import WorkloadPoint, to_json


def workload_facts(cells: Iterable[ComparedCell]) -> Mapping[str, Facts]:
    """By workload and axis: every value that its points have, in the order of the plan; skipped cells count too.

    Repetitions and requests are not among them: they are held against each other point by point.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    for cell in cells:
        axes = found.setdefault(cell.point.workload, {})
        for name, value in _axes(cell.point).items():
            axes.setdefault(name, {})[value] = None
    return {workload: {name: ", ".join(values) for name, values in axes.items()} for workload, axes in found.items()}


def _axes(point: WorkloadPoint) -> Facts:
    facts = {
        "kind": point.kind,
        "prompts": point.prompts,
        "concurrency" if point.rate is None else "rate": point.load,
        "max_tokens": str(point.max_tokens),
        "turns": point.turns,
        "request_timeout": f"{point.request_timeout:g} s",
        "stall_timeout": f"{point.stall_timeout:g} s",
    }
    if point.rate is not None:
        facts |= {"sized for": str(point.concurrency)}
    if point.arrivals is not None:
        facts |= {"arrivals": f"{point.arrivals}, seed {point.arrival_seed}"}
    return facts | {f"sampling {name}": text for name, text in flat(to_json(point.sampling)).items()}
