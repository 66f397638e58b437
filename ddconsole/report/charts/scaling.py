"""Against the tensor-parallel size, with the stretch marked in which a server's GPUs hang on several NUMA nodes."""

from collections.abc import Iterator, Sequence

from ddconsole.report.charts.method_curves import RATE_AXIS, curves_over, marks_of, output_rate
from ddconsole.report.grid import point_titles
from ddconsole.report.result_set import CellResult, PointKey, ResultSet, point_key
from ddconsole.report.series import Axis, Band, Chart, Panel, in_parts

_PANELS = 9


def scaling_charts(result: ResultSet) -> Iterator[Chart]:
    """Every workload point as a panel, where there are at least two sizes."""
    sizes = sorted({cell.tensor_parallel for cell in result.counted()})
    if len(sizes) < 2:
        return
    points: dict[PointKey, list[CellResult]] = {}
    for cell in result.cells:
        points.setdefault(point_key(cell.point), []).append(cell)
    shown = [cells for cells in points.values() if len({one.tensor_parallel for one in cells if one.figures}) > 1]
    if not shown:
        return
    titles = point_titles([cells[0].point for cells in shown])
    bands, note = _numa(result, sizes)
    x = Axis("tensor-parallel size (GPUs)", logarithmic=True, ticks=tuple(map(float, sizes)))
    panels = tuple(
        Panel(
            title,
            x,
            RATE_AXIS,
            curves_over(result, cells, lambda cell: float(cell.tensor_parallel), output_rate),
            bands=bands,
        )
        for title, cells in zip(titles, shown, strict=True)
    )
    cells = tuple(cell for some in shown for cell in some)
    yield from in_parts(
        Chart(
            name="fig-scaling",
            caption="Output rate per request against the tensor-parallel size.",
            panels=panels,
            cells=cells,
            notes=(note,),
            marks=marks_of(cells),
        ),
        _PANELS,
    )


def _numa(result: ResultSet, sizes: Sequence[int]) -> tuple[tuple[Band, ...], str]:
    """The stretch from the first size on whose GPUs hang on several nodes, and what is known of it."""
    nodes: dict[int, set[tuple[int, ...]]] = {size: set() for size in sizes}
    for cell in result.counted():
        if cell.figures and cell.figures.numa_nodes is not None:
            nodes[cell.tensor_parallel].add(cell.figures.numa_nodes)
    if not all(nodes.values()):
        return (), "On which NUMA nodes the GPUs hang is not in the records."
    split = [size for size in sizes if any(len(one) > 1 for one in nodes[size])]
    if not split:
        return (), "The GPUs of each server hang on one NUMA node."
    before = [size for size in sizes if size < split[0]]
    low = (before[-1] * split[0]) ** 0.5 if before else split[0] / 2
    others = [size for size in sizes if size > split[0] and size not in split]
    if others:  # an odd assignment: no single stretch says it
        return (), f"The GPUs of sizes {', '.join(map(str, split))} hang on several NUMA nodes."
    return (Band(low, sizes[-1] * 2.0, "NUMA split"),), "Shaded: the GPUs of one server hang on several NUMA nodes."
