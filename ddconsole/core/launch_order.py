"""In which order launches and their cells come: as `protocol.order` says.

`plan`: round by round, each in the order of the table; so with several launches a deployment's launches are apart.
`abba`: every second round backwards, deployments and cells: what grows or falls steadily over the sweep, as warmth
does, falls on all alike, for the places of a deployment in two rounds have the same mean.
`information`: in the first round every method is measured once before any is measured at a second tensor-parallel size,
the baseline of a size before its methods there: no speed-up is known without it. Among those, and in later rounds, the
launch comes first that makes most cells known for its time, by what is foretold of it: the mean time at which a cell
becomes known is then the least (Smith, Naval Research Logistics Quarterly 3, 1956). In later rounds only cells that may
still be the best at their point count in full; the others count a quarter.
"""

from collections.abc import Callable
from typing import TypeAlias

from ddconsole.core import states as st
from ddconsole.core.duration import estimates_for
from ddconsole.core.row_text import PointKey, cell_figures, point_key
from ddconsole.core.run_state import CellRow, LaunchRow, RunState

Rank: TypeAlias = tuple[float, ...]
"""Lower comes first."""

PLAN, ABBA, INFORMATION = "plan", "abba", "information"
NEAR_THE_BEST = 0.9
"""Share of the best rate at its point from which on a cell may still turn out to be the best."""
_OTHERS_WEIGH = 0.25


def order_of(state: RunState) -> str:
    """What the run's plan asks for."""
    asked = state.created.protocol.get("order") if state.created else None
    return asked if asked in (ABBA, INFORMATION) else PLAN


def launch_rank(state: RunState) -> Callable[[CellRow], Rank]:
    """Ranks waiting cells for the choice of the next launch: that of the first one's deployment, in its next round."""
    places = {name: place for place, name in enumerate(state.deployments)}
    order = order_of(state)
    seconds_a_cell = _seconds_a_cell(state) if order == INFORMATION else {}
    methods, baselines = _known(state) if order == INFORMATION else (set(), set())

    def rank(row: CellRow) -> Rank:
        turn = row.next_round() or 1
        place = places[row.cell.deployment]
        if order == INFORMATION:
            deployment = state.deployments[row.cell.deployment]
            too_early = not _is_baseline(state, row) and deployment.tensor_parallel not in baselines
            again = deployment.method in methods
            waits = (too_early, again) if turn == 1 else (False, False)
            return turn, *waits, seconds_a_cell[row.cell.deployment, turn], place
        return turn, -place if order == ABBA and turn % 2 == 0 else place

    return rank


def cell_rank(state: RunState, launch: LaunchRow) -> Callable[[CellRow], int]:
    """Ranks the cells of a launch."""
    places = {name: place for place, name in enumerate(state.cells)}
    backwards = order_of(state) == ABBA and launch.round % 2 == 0
    return lambda row: -places[row.cell.id] if backwards else places[row.cell.id]


def _known(state: RunState) -> tuple[set[str], set[int]]:
    """Methods that were measured, and the sizes at which the baseline was, or at which there is none to wait for."""
    methods: set[str] = set()
    without = {one.tensor_parallel for one in state.deployments.values()}
    measured: set[int] = set()
    for row in state.cells.values():
        deployment = state.deployments[row.cell.deployment]
        if row.done_attempts():
            methods.add(deployment.method)
        if _is_baseline(state, row):
            waits = isinstance(row.state, st.Pending | st.Running)
            measured |= {deployment.tensor_parallel} if row.done_attempts() else set()
            without -= {deployment.tensor_parallel} if waits else set()
    return methods, measured | without


def _seconds_a_cell(state: RunState) -> dict[tuple[str, int], float]:
    """By deployment and round: the launch's seconds for each cell that it makes known."""
    estimates = estimates_for(state)
    best = _best_rates(state)
    gains: dict[tuple[str, int], float] = {}
    seconds: dict[tuple[str, int], float] = {}
    for row in state.cells.values():
        if not isinstance(row.state, st.Pending):
            continue
        key = row.cell.deployment, row.next_round() or 1
        deployment = state.deployments[row.cell.deployment]
        gains[key] = gains.get(key, 0.0) + _gain(row, best.get(point_key(row, state)))
        seconds.setdefault(key, estimates.launch_seconds(deployment))
        seconds[key] += estimates.cell_seconds(deployment, row.cell.point)
    return {key: seconds[key] / gains[key] for key in gains}


def _gain(row: CellRow, best: float | None) -> float:
    figures = cell_figures(row)
    if figures is None or figures.output_rate is None or best is None:
        return 1.0
    return 1.0 if figures.output_rate >= NEAR_THE_BEST * best else _OTHERS_WEIGH


def _best_rates(state: RunState) -> dict[PointKey, float]:
    best: dict[PointKey, float] = {}
    for row in state.cells.values():
        figures = cell_figures(row)
        if figures is not None and figures.output_rate is not None:
            key = point_key(row, state)
            best[key] = max(best.get(key, 0.0), figures.output_rate)
    return best


def _is_baseline(state: RunState, row: CellRow) -> bool:
    return state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline
