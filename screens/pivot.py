"""The cells of a run by two axes of one's choice; what the two do not cover makes tables of their own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ddconsole.core.row_text import plain_line
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.states import CellPhase


class Axis(StrEnum):
    """What cells can be told apart by."""

    METHOD = "method"
    SIZE = "TP"
    POINT = "workload point"
    """Workload, load and length together."""
    WORKLOAD = "workload"
    LOAD = "concurrency"
    LENGTH = "length"

    @property
    def covers(self) -> frozenset["Axis"]:
        """The simple axes that it says all of."""
        return _OF_A_POINT if self is Axis.POINT else frozenset({self})


_OF_A_POINT = frozenset({Axis.WORKLOAD, Axis.LOAD, Axis.LENGTH})
_SIMPLE = (Axis.SIZE, Axis.METHOD, Axis.WORKLOAD, Axis.LOAD, Axis.LENGTH)
"""In the order in which a table's title names them."""

Key: TypeAlias = tuple[str, ...]
"""A value of an axis: three texts for a point, else one."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a pivot."""

    title: tuple[tuple[Axis, str], ...]
    """What all its cells have in common."""
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], CellRow]


@dataclass(frozen=True, slots=True)
class Pivot:
    """All cells of a run."""

    down: Axis
    across: Axis
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which axes go down and across."""

    down: Axis = Axis.METHOD
    across: Axis = Axis.POINT

    def next_down(self, axes: Sequence[Axis]) -> "Choice":
        """The next axis down of those there are; none that is across already."""
        return Choice(_next(self.down, [one for one in axes if not one.covers & self.across.covers]), self.across)

    def next_across(self, axes: Sequence[Axis]) -> "Choice":
        """The next axis across."""
        return Choice(self.down, _next(self.across, [one for one in axes if not one.covers & self.down.covers]))

    def swapped(self) -> "Choice":
        """The other way round."""
        return Choice(self.across, self.down)


def _next(axis: Axis, axes: Sequence[Axis]) -> Axis:
    if axis not in axes:
        return axes[0] if axes else axis
    return axes[(axes.index(axis) + 1) % len(axes)]


def axes_of(state: RunState) -> tuple[Axis, ...]:
    """The axes in which the run's cells differ, and methods and points in any case."""
    seen: dict[Axis, set[str]] = {axis: set() for axis in _SIMPLE}
    names = _Names()
    for row in state.cells.values():
        for axis, value in names.values(row, state).items():
            seen[axis].add(value)
    always = (Axis.METHOD, Axis.POINT)
    return tuple(axis for axis in Axis if axis in always or len(seen[axis]) > 1)


def pivot(state: RunState, choice: Choice) -> Pivot:
    """Every cell once. Two cells in one place are told apart: the later one's method has its id behind it."""
    covered = choice.down.covers | choice.across.covers
    rest = [axis for axis in _SIMPLE if axis not in covered]
    found: dict[tuple[str, ...], dict[tuple[Key, Key], CellRow]] = {}
    taken: set[tuple[str, ...]] = set()
    names = _Names()
    for row in state.cells.values():
        values = names.values(row, state)
        place = tuple(values[axis] for axis in _SIMPLE)
        if place in taken:
            values[Axis.METHOD] += f" ({row.cell.id})"
        taken.add(place)
        block = tuple(values[axis] for axis in rest)
        found.setdefault(block, {})[_key(values, choice.down), _key(values, choice.across)] = row
    tables = tuple(_table(rest, block, cells, choice) for block, cells in found.items())
    return Pivot(choice.down, choice.across, tables)


class _Names:
    """The values of cells; names are made safe to show once each."""

    def __init__(self) -> None:
        self._safe: dict[str, str] = {}

    def values(self, row: CellRow, state: RunState) -> dict[Axis, str]:
        deployment, point = state.deployments[row.cell.deployment], row.cell.point
        return {
            Axis.SIZE: str(deployment.tensor_parallel),
            Axis.METHOD: self._shown(deployment.method),
            Axis.WORKLOAD: self._shown(point.workload),
            Axis.LOAD: point.load,
            Axis.LENGTH: str(point.max_tokens),
        }

    def _shown(self, name: str) -> str:
        if name not in self._safe:
            self._safe[name] = plain_line(name)
        return self._safe[name]


def _key(values: Mapping[Axis, str], axis: Axis) -> Key:
    if axis is Axis.POINT:
        return values[Axis.WORKLOAD], values[Axis.LOAD], values[Axis.LENGTH]
    return (values[axis],)


def _table(
    rest: Sequence[Axis], block: Sequence[str], cells: Mapping[tuple[Key, Key], CellRow], choice: Choice
) -> Table:
    return Table(
        title=tuple(zip(rest, block, strict=True)),
        rows=_ordered((down for down, _ in cells), choice.down),
        columns=_ordered((across for _, across in cells), choice.across),
        cells=cells,
    )


def _ordered(keys: Iterable[Key], axis: Axis) -> tuple[Key, ...]:
    """Numbers by their size, names and points as the plan has them."""
    unique = list(dict.fromkeys(keys))
    if axis in {Axis.SIZE, Axis.LOAD, Axis.LENGTH}:
        unique.sort(key=lambda key: _size(key[0]))
    return tuple(unique)


def _size(text: str) -> tuple[bool, float]:
    """`c8` before `c16`, and both before `4/s`."""
    is_rate = text.endswith("/s")
    try:
        return is_rate, float(text.removeprefix("c").removesuffix("/s"))
    except ValueError:
        return is_rate, 0.0


def phases_shown(shown: Pivot) -> frozenset[CellPhase]:
    """The phases that occur, for a legend."""
    return frozenset(row.state.phase for table in shown.tables for row in table.cells.values())
