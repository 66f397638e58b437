"""Measuring a cell once more until its interval is narrow enough, up to so many launches.

A launch is what repeats independently, so a repetition is one more round: the cell on a launch of its own. The
interval is Student's t over the logarithms of the launches' median rates, as the report makes it.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.events import CellsRepeated
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.student_t import t_95

LAUNCHES_FOR_AN_INTERVAL = 3
MOST_LAUNCHES = 10
"""More would cost more than they tell."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """What the plan asks for."""

    until: float
    """Half of the interval's width, as a share of the rate."""
    most: int
    """Launches."""


def repeat_of(state: RunState) -> Repeat | None:
    """What the run's plan asks for; None where the number of launches is fixed."""
    asked = state.created.protocol.get("repeat") if state.created else None
    if not isinstance(asked, Mapping):
        return None
    return Repeat(float(asked["until"]), min(int(asked["most"]), MOST_LAUNCHES))


def half_width(rates: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval, as a share of the rate; None with fewer than three launches.

    Args:
        rates: one for each launch, ten at most; above zero.
    """
    if len(rates) < LAUNCHES_FOR_AN_INTERVAL:
        return None
    error = statistics.stdev([math.log(rate) for rate in rates]) / math.sqrt(len(rates))
    return math.sinh(t_95(len(rates) - 1) * error)


def repetitions(state: RunState) -> list[CellsRepeated]:
    """Which done cells are to be measured on one more launch, and why."""
    repeat = repeat_of(state)
    if repeat is None or state.phase is not st.RunPhase.RUNNING:
        return []
    found = ((row, _reason(row, repeat)) for row in state.cells.values() if isinstance(row.state, st.Done))
    return [CellsRepeated((row.cell.id,), reason) for row, reason in found if reason]


def _reason(row: CellRow, repeat: Repeat) -> str:
    """Why a done cell is measured once more; empty when it is not."""
    done = len(row.done_attempts())
    rates = _rates(row)
    if done >= repeat.most or not rates:
        return ""
    width = half_width(rates)
    if width is None:
        return f"an interval needs {LAUNCHES_FOR_AN_INTERVAL} launches, it has {len(rates)} (at most {repeat.most})"
    if width <= repeat.until:
        return ""
    return (
        f"its interval is ±{width:.1%} over {len(rates)} launches, asked is ±{repeat.until:.1%} (at most {repeat.most})"
    )


def _rates(row: CellRow) -> list[float]:
    told = (attempt.figures.get("output_rate") for attempt in row.compared_attempts())
    return [float(rate) for rate in told if isinstance(rate, int | float) and rate > 0]
