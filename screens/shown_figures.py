"""The figures that the Results screen can show: of a cell as a number, and as a text."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ddconsole.core import states as st
from ddconsole.core.row_text import (
    GLYPHS,
    Baselines,
    PointKey,
    acceptance_length,
    baseline_is_of_another_engine,
    point_key,
    seconds_short,
)
from ddconsole.core.run_state import Attempt, CellRow, RunState


class MeasuredCell:
    """A cell with the attempts that make its figures, and its mark: worked out once, for they are asked for often."""

    __slots__ = ("_key", "_told", "attempts", "has_figures", "mark", "row")

    def __init__(self, row: CellRow) -> None:
        self.row = row
        done = row.done_attempts() if row.attempts else ()
        self.attempts = row.compared_attempts() if len(done) > 1 else done
        self.mark = _mark_of(row, done, self.attempts) if done else ""
        self.has_figures = any(attempt.figures for attempt in self.attempts)
        self._key: PointKey | None = None
        self._told: dict[str, float | None] = {}

    def told(self, name: str) -> float | None:
        """The median of a figure that the attempts tell under this name."""
        if name not in self._told:
            self._told[name] = _median([number(attempt.figures.get(name)) for attempt in self.attempts])
        return self._told[name]

    @property
    def acceptance(self) -> float | None:
        """The median acceptance length; None where no attempt tells it."""
        if "acceptance" not in self._told:
            lengths = [acceptance_length(attempt.figures) for attempt in self.attempts if attempt.figures]
            self._told["acceptance"] = _median(lengths)
        return self._told["acceptance"]

    def point_key(self, state: RunState) -> PointKey:
        """What must be equal for two methods to be compared."""
        if self._key is None:
            self._key = point_key(self.row, state)
        return self._key


class MeasuredCells:
    """The cells of a run, each worked out when it changed."""

    def __init__(self) -> None:
        self._known: dict[str, MeasuredCell] = {}

    def of(self, row: CellRow) -> MeasuredCell:
        """A cell as it is now."""
        known = self._known.get(row.cell.id)
        if known is None or known.row is not row:
            known = self._known[row.cell.id] = MeasuredCell(row)
        return known


_GOES_ON = frozenset({st.CellPhase.DONE, st.CellPhase.RUNNING, st.CellPhase.PENDING})
"""Phases of which a figure that is there already needs no mark."""


def _mark_of(row: CellRow, done: Sequence[Attempt], compared: Sequence[Attempt]) -> str:
    """`!` where something disturbed it, `~` where its tokens were estimated; a glyph where it went no further."""
    if row.state.phase not in _GOES_ON:
        return GLYPHS[row.state.phase]
    if len(done) > len(compared) or any(attempt.flags for attempt in done):
        return "!"
    return "~" if any(attempt.figures.get("estimated_tokens") for attempt in compared) else ""


Value: TypeAlias = Callable[[MeasuredCell, RunState, Baselines], float | None]


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """One figure."""

    name: str
    definition: str
    """Its key in `core.figures.DEFINITIONS`."""
    value: Value
    text: Callable[[float], str]
    width: int = 8
    """Cells of its column where it stands beside others."""
    higher_is_better: bool = True
    unit: str = ""
    """Of its value, where the name does not say it."""

    @property
    def with_unit(self) -> str:
        """Its name for an axis: `TTFT (s)`."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def text_of(self, cell: MeasuredCell, state: RunState, known: Baselines) -> str:
        """Of a cell; empty where it is not known."""
        value = self.value(cell, state, known)
        if value is not None:
            return self.text(value)
        # A cell of another engine has a rate, and nothing to hold it against.
        if self.definition == "speed_up" and baseline_is_of_another_engine(cell.row, state, known):
            return "≠build"
        return "?" if self.definition == "acceptance" else ""


def told(name: str) -> Value:
    """The median of a figure that attempts tell under this name."""

    def value(cell: MeasuredCell, _state: RunState, _known: Baselines) -> float | None:
        return cell.told(name)

    return value


def number(value: Any) -> float | None:
    """What a journal told, where it is a number that can be shown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def speed_up(cell: MeasuredCell, state: RunState, known: Baselines) -> float | None:
    """Median tok/s over the baseline's."""
    rate = _rate(cell, state, known)
    if rate is None:
        return None
    baseline = known.get(cell.point_key(state))
    return rate / baseline if baseline else None


def acceptance(cell: MeasuredCell, state: RunState, _known: Baselines) -> float | None:
    """Acceptance length; 1 for the baseline by definition."""
    if cell.acceptance is not None:
        return cell.acceptance
    is_baseline = (
        state.created is not None and state.deployments[cell.row.cell.deployment].method == state.created.baseline
    )
    return 1.0 if is_baseline and cell.attempts else None


def _median(values: list[float | None]) -> float | None:
    if len(values) == 1:
        return values[0]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


_rate = told("output_rate")


def _chunk_gap(cell: MeasuredCell, _state: RunState, _known: Baselines) -> float | None:
    """A journal of an earlier version tells 0 where chunks were read together: their times are not known."""
    return cell.told("chunk_gap") or None


def _one_decimal(value: float) -> str:
    return f"{value:.1f}"


def _two_decimals(value: float) -> str:
    return f"{value:.2f}"


SHOWN_FIGURES: tuple[ShownFigure, ...] = (
    ShownFigure("tok/s", "output_rate", _rate, _one_decimal),
    ShownFigure("speed-up", "speed_up", speed_up, _two_decimals, 6, unit="×"),
    ShownFigure("acceptance", "acceptance", acceptance, _two_decimals, 6, unit="tokens a step"),
    ShownFigure("TTFT", "ttft", told("ttft"), seconds_short, higher_is_better=False, unit="s"),
    ShownFigure("TPOT", "tpot", told("tpot"), seconds_short, higher_is_better=False, unit="s"),
    ShownFigure("server tok/s", "server_rate", told("server_rate"), _one_decimal),
    ShownFigure("steady tok/s", "steady_rate", told("steady_rate"), _one_decimal),
    ShownFigure("end to end", "end_to_end", told("end_to_end"), seconds_short, higher_is_better=False, unit="s"),
    ShownFigure("goodput", "goodput", told("goodput"), _two_decimals, unit="requests/s"),
    ShownFigure("chunk gap", "chunk_gap", _chunk_gap, seconds_short, higher_is_better=False, unit="s"),
    ShownFigure("tokens a chunk", "tokens_per_chunk", told("tokens_per_chunk"), _two_decimals),
    ShownFigure("spread", "spread", told("output_rate_spread"), _one_decimal, higher_is_better=False, unit="tok/s"),
)
TOGETHER = SHOWN_FIGURES[:3]
"""What stands side by side where there is room."""
