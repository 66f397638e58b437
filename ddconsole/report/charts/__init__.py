"""Every figure of a result set as data: one module a figure, and one line here."""

from collections.abc import Callable, Iterable, Iterator

from ddconsole.report.charts.bars import energy_charts, rate_charts
from ddconsole.report.charts.budget import budget_charts
from ddconsole.report.charts.drift import drift_charts
from ddconsole.report.charts.histogram import acceptance_charts
from ddconsole.report.charts.length import length_charts
from ddconsole.report.charts.load import load_charts
from ddconsole.report.charts.pareto import pareto_charts
from ddconsole.report.charts.scaling import scaling_charts
from ddconsole.report.charts.turns import turn_charts
from ddconsole.report.result_set import ResultSet
from ddconsole.report.series import Chart

CHARTS: tuple[Callable[[ResultSet], Iterable[Chart]], ...] = (
    rate_charts,
    budget_charts,
    length_charts,
    load_charts,
    turn_charts,
    scaling_charts,
    pareto_charts,
    acceptance_charts,
    energy_charts,
    drift_charts,
)


def all_charts(result: ResultSet) -> Iterator[Chart]:
    """Those for which there are data, in the order of a report."""
    for make in CHARTS:
        yield from make(result)
