"""Under load: against the number of requests at once, or, in an open loop, against the request rate."""

from collections.abc import Iterator, Mapping

from ddconsole.report.charts.method_curves import (
    RATE_AXIS,
    Figure,
    marks_of,
    median_ttft,
    output_rate,
    panels_over,
    plain,
    server_rate,
)
from ddconsole.report.latex_text import file_stem
from ddconsole.report.result_set import CellFigures, CellResult, ResultSet
from ddconsole.report.series import Axis, Chart
from ddconsole.report.statistics import Estimate

_FEWEST = 2


def _goodput(figures: CellFigures) -> Estimate | None:
    return plain(figures.goodput)


_CLOSED: Mapping[str, tuple[Axis, Figure]] = {
    "per request": (RATE_AXIS, output_rate),
    "server": (Axis("rate of the server (tok/s)"), server_rate),
    "time to first token": (Axis("TTFT, median (ms)"), median_ttft),
    "goodput": (Axis("goodput (requests/s)"), _goodput),
}
_OPEN: Mapping[str, tuple[Axis, Figure]] = {
    "time to first token": (Axis("TTFT, median (ms)"), median_ttft),
    "server": (Axis("rate of the server (tok/s)"), server_rate),
    "goodput": (Axis("goodput (requests/s)"), _goodput),
}


def load_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each tensor-parallel size, workload and length with at least two loads."""
    found: dict[tuple[int, str, str, int], list[CellResult]] = {}
    for cell in result.cells:
        if cell.point.kind in {"closed-loop", "open-loop"}:
            place = (cell.tensor_parallel, cell.point.kind, cell.point.workload, cell.point.max_tokens)
            found.setdefault(place, []).append(cell)
    for (size, kind, workload, length), cells in found.items():
        loads = sorted({_load(cell) for cell in cells if cell.figures})
        if len(loads) >= _FEWEST:
            yield _chart(result, cells, f"{file_stem(workload)}-{length}-tp{size}", kind, loads)


def _chart(result: ResultSet, cells: list[CellResult], suffix: str, kind: str, loads: list[float]) -> Chart:
    is_open = kind == "open-loop"
    what = "request rate" if is_open else "number of requests at once"
    point = cells[0].point
    limits = "; ".join(f"{name} {value * 1000:g} ms" for name, value in sorted(_slo(result).items()))
    panels = panels_over(
        result,
        cells,
        Axis("requests/s" if is_open else "requests at once", logarithmic=True, ticks=tuple(loads)),
        _load,
        _OPEN if is_open else _CLOSED,
    )
    notes = ["The median TTFT is drawn where at least 11 requests carry it."]
    if any(panel.title == "goodput" for panel in panels) and limits:
        notes.append(f"Goodput: requests a second within {limits}.")
    return Chart(
        name=f"fig-{'rate' if is_open else 'concurrency'}-{suffix}",
        caption=(
            f"Against the {what}, tensor-parallel size {cells[0].tensor_parallel}, workload {point.workload}, "
            f"{point.max_tokens} tokens."
        ),
        panels=panels,
        cells=tuple(cells),
        notes=tuple(notes),
        columns=2 if len(panels) in {2, 4} else 3,
        marks=marks_of(cells),
    )


def _load(cell: CellResult) -> float:
    return float(cell.point.concurrency) if cell.point.rate is None else cell.point.rate


def _slo(result: ResultSet) -> dict[str, float]:
    told = result.protocol.get("slo")
    limits = told if isinstance(told, Mapping) else {}
    return {str(name): float(value) for name, value in limits.items() if isinstance(value, int | float)}
