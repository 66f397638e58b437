"""The results as tables need them: methods down, workload points across, for one tensor-parallel size and load mode."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult, PointKey, ResultSet, point_key

LOAD_MODES = {
    "single": "single generations, one request at a time",
    "conversation": "conversations of several turns, one request at a time",
    "closed-loop": "closed loop: a fixed number of clients, each sends its next request when its last has ended",
    "open-loop": "open loop: requests are sent at their own times, whether or not earlier ones have ended",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of one tensor-parallel size and one load mode; load modes are never mixed in a table."""

    tensor_parallel: int
    kind: str
    methods: tuple[str, ...]
    points: tuple[WorkloadPoint, ...]
    cells: Mapping[tuple[str, PointKey], CellResult]
    part: int = 1

    def at(self, method: str, point: WorkloadPoint) -> CellResult | None:
        """The cell in one place, or None where the plan has none."""
        return self.cells.get((method, point_key(point)))

    def column(self, point: WorkloadPoint) -> list[CellResult]:
        """All cells of one point, in the order of methods."""
        found = (self.at(method, point) for method in self.methods)
        return [cell for cell in found if cell is not None]

    def shown(self) -> list[CellResult]:
        """All cells, point by point."""
        return [cell for point in self.points for cell in self.column(point)]

    def marks(self) -> frozenset[Mark]:
        """Those of its cells, and the one for places without a cell."""
        found = {mark for cell in self.shown() for mark in cell.marks}
        if len(self.shown()) < len(self.methods) * len(self.points):
            found.add(Mark.NOT_IN_PLAN)
        return frozenset(found)

    @property
    def suffix(self) -> str:
        """For file names: tensor-parallel size, and the part where a table had to be split."""
        return f"tp{self.tensor_parallel}" + (f"-{self.part}" if self.part > 1 else "")

    def split(self, points: int, methods: int | None = None) -> Iterator["Grid"]:
        """Parts with at most so many points side by side, and so many methods."""
        step = methods or len(self.methods)
        chunks = [self.methods[first : first + step] for first in range(0, len(self.methods), step)]
        yield from self._parts([(chunk, points) for chunk in chunks])

    def split_to_page(self, lines: int, lines_of: Callable[[str], int], side_by_side: int = 0) -> Iterator["Grid"]:
        """Parts that fit on a page of so many lines.

        Args:
            lines: of a page.
            lines_of: how many lines one row of a method takes.
            side_by_side: points in one table, each method on one row; 0 where points stand below each other.
        """
        chunks: list[list[str]] = [[]]
        for method in self.methods:
            if chunks[-1] and sum(map(lines_of, chunks[-1])) + lines_of(method) > lines:
                chunks.append([])
            chunks[-1].append(method)
        title_and_gap = 2
        yield from self._parts(
            [
                (tuple(chunk), side_by_side or max(1, lines // (sum(map(lines_of, chunk)) + title_and_gap)))
                for chunk in chunks
            ]
        )

    def _parts(self, chunks: Sequence[tuple[tuple[str, ...], int]]) -> Iterator["Grid"]:
        part = 0
        for methods, points in chunks:
            for first in range(0, len(self.points), points):
                part += 1
                yield replace(self, methods=methods, points=self.points[first : first + points], part=part)


def grids(result: ResultSet, *kinds: str) -> list[Grid]:
    """One grid for each tensor-parallel size and load mode, of the given load modes or of all; without empty ones."""
    found: dict[tuple[int, str], list[CellResult]] = {}
    for cell in result.cells:
        if not kinds or cell.point.kind in kinds:
            found.setdefault((cell.tensor_parallel, cell.point.kind), []).append(cell)
    order = sorted(
        found, key=lambda place: (place[0], list(LOAD_MODES).index(place[1]) if place[1] in LOAD_MODES else 9)
    )
    return [_grid(*place, found[place]) for place in order if any(cell.figures for cell in found[place])]


def _grid(tensor_parallel: int, kind: str, cells: Sequence[CellResult]) -> Grid:
    points: dict[PointKey, WorkloadPoint] = {}
    for cell in cells:
        points.setdefault(point_key(cell.point), cell.point)
    return Grid(
        tensor_parallel=tensor_parallel,
        kind=kind,
        methods=tuple(dict.fromkeys(cell.method for cell in cells)),
        points=tuple(points.values()),
        cells={(cell.method, point_key(cell.point)): cell for cell in cells},
    )


def point_titles(points: Sequence[WorkloadPoint]) -> list[str]:
    """A short title for each point, different for different points: only what tells them apart."""
    several_lengths = {
        name
        for name in (one.workload for one in points)
        if len({p.max_tokens for p in points if p.workload == name}) > 1
    }
    titles: list[str] = []
    for point in points:
        title = point.workload
        if point.rate is not None:
            title += f", {point.rate:g} requests/s"
        elif point.concurrency > 1 or point.kind == "closed-loop":
            title += f", {point.concurrency} at once"
        if point.workload in several_lengths or point.kind == "single":
            title += f", {point.max_tokens} tokens"
        if title in titles:
            title += f", variant {titles.count(title) + 1}"
        titles.append(title)
    return titles


def best_cells(cells: Sequence[CellResult]) -> frozenset[str]:
    """The cells to print bold: the highest output rate, and all whose interval (or spread) overlaps its own."""
    rated = [(cell.cell, cell.figures.output_rate) for cell in cells if cell.figures and cell.figures.output_rate]
    if len(rated) < 2:
        return frozenset()
    highest = max((rate for _, rate in rated), key=lambda rate: rate.value)
    return frozenset(name for name, rate in rated if rate.overlaps(highest))
