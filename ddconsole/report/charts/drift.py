"""The baseline over the time of the sweep: whether the machine stayed the same while others were measured."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from ddconsole.report.charts.method_curves import marks_of, plain
from ddconsole.report.result_set import CellResult, CountedAttempt, ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Role, Shape

Told = Callable[[CellResult, CountedAttempt], float | None]


def drift_charts(result: ResultSet) -> Iterator[Chart]:
    """One, where the baseline was measured at least twice; without hardware readings the rate alone."""
    cells = [cell for cell in result.counted() if cell.deployment.method == result.baseline]
    x = Axis("hours since the run began", from_zero=False)
    quantities: Sequence[tuple[str, Axis, Told]] = (
        ("output rate", Axis("rate over its cell's median", from_zero=False), _relative_rate),
        ("temperature", Axis("GPUs, mean (°C)", from_zero=False), _temperature),
        ("clock", Axis("SM clock, mean (MHz)", from_zero=False), _clock),
    )
    panels = tuple(
        Panel(title, x, y, _curves(result, cells, told), Shape.DOTS)
        for title, y, told in quantities
        if _times(cells, told) > 1
    )
    if panels:
        again = sum(1 for cell in cells if cell.figures and len(cell.figures.attempts) > 1)
        yield Chart(
            name="fig-drift",
            caption=f"The baseline {result.baseline} over the time of the run.",
            panels=panels,
            cells=tuple(cells),
            notes=(f"A dot is an attempt; {again} of {len(cells)} cells were measured again: the rates are theirs.",),
            marks=marks_of(cells),
        )


def _times(cells: Sequence[CellResult], told: Told) -> int:
    return sum(1 for cell in cells if cell.figures for one in cell.figures.attempts if told(cell, one) is not None)


def _curves(result: ResultSet, cells: Sequence[CellResult], told: Told) -> tuple[Curve, ...]:
    curves = []
    for place, size in enumerate(sorted({cell.tensor_parallel for cell in cells})):
        dots = [
            (one.started_at, Point((one.started_at - result.began) / 3600, plain(value), cell.cell))
            for cell in cells
            if cell.tensor_parallel == size and cell.figures
            for one in cell.figures.attempts
            if (value := told(cell, one)) is not None
        ]
        points = tuple(point for _, point in sorted(dots, key=lambda dot: dot[0]))
        curves.append(Curve(f"{result.baseline} TP{size}", Role.OTHER, place, points))
    return tuple(curves)


def _relative_rate(cell: CellResult, attempt: CountedAttempt) -> float | None:
    rates = [one.summary.output_rate for one in cell.figures.attempts] if cell.figures else []
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2 or attempt.summary.output_rate is None:
        return None
    return attempt.summary.output_rate / statistics.median(known)


def _temperature(cell: CellResult, attempt: CountedAttempt) -> float | None:
    return attempt.hardware.temperature if attempt.hardware else None


def _clock(cell: CellResult, attempt: CountedAttempt) -> float | None:
    return attempt.hardware.sm_clock if attempt.hardware else None
