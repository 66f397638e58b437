"""A pivot of what was measured as lines: one table below the other, marks in place of and beside the figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.figures import DEFINITIONS
from ddconsole.core.row_text import GLYPHS, Baselines
from ddconsole.core.run_state import CellRow, RunState
from screens.pivot import Axis, Key, Pivot, Table, phases_shown
from screens.shown_figures import SHOWN_FIGURES, TOGETHER, MeasuredCells, ShownFigure
from screens.spans import EMPTY, PHASE_ROLES, Line, Role, Span, cut, cut_apart, labelled, line

_LEAST_LABEL, _MOST_LABEL = 8, 22
_NARROW, _WIDE = 8, 12
"""Cells of a column; in a wide one a phase stands as a word."""

_WHY_NO_FIGURE: Mapping[st.CellPhase, str] = {
    st.CellPhase.FAILED: "failed",
    st.CellPhase.BLOCKED: "blocked",
    st.CellPhase.UNFIT: "does not fit",
    st.CellPhase.INTERRUPTED: "interrupted",
    st.CellPhase.STOPPED: "stopped",
    st.CellPhase.PRUNED: "pruned",
    st.CellPhase.SKIPPED: "skipped",
    st.CellPhase.RUNNING: "running",
    st.CellPhase.PENDING: "not measured yet",
}
"""In the order of the legend: where it is narrow, its end is cut."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a pivot is shown."""

    figure: int = 0
    """In `SHOWN_FIGURES`."""
    shift: int = 0
    """Columns that are out of sight to the left."""
    width: int = 80


@dataclass(frozen=True, slots=True)
class Source:
    """Where the figures come from."""

    state: RunState
    known: Baselines
    """Of `baselines(state)`."""
    measured: MeasuredCells


@dataclass(frozen=True, slots=True)
class _Room:
    """What one table has room for."""

    label: int
    column: int
    figures: tuple[ShownFigure, ...]
    columns: tuple[Key, ...]
    left: int
    """Columns that are out of sight to the left, and to the right."""
    right: int


def table_lines(shown: Pivot, source: Source, look: Look) -> list[Line]:
    """All tables with one figure, or with three where there is room."""
    lines: list[Line] = []
    for table in shown.tables:
        room = _room(shown, table, look)
        lines += _head(shown, table, room)
        lines += _body(shown, table, room, source)
        lines.append(EMPTY)
    return lines or [line((" no cell yet", Role.DIM))]


def most_columns(shown: Pivot) -> int:
    """Of the widest table."""
    return max((len(table.columns) for table in shown.tables), default=0)


def _room(shown: Pivot, table: Table, look: Look) -> _Room:
    longest = max((len(_row_label(shown.down, key)) for key in table.rows), default=0)
    label = min(_MOST_LABEL, max(_LEAST_LABEL, longest)) + 2
    figures: tuple[ShownFigure, ...] = (SHOWN_FIGURES[look.figure % len(SHOWN_FIGURES)],)
    count = len(table.columns)
    together = sum(figure.width for figure in TOGETHER)
    column = _WIDE if label + count * _WIDE <= look.width else _NARROW
    if look.figure == 0 and label + count * together <= look.width:
        figures, column = TOGETHER, together
    fits = max(1, (look.width - label) // column)
    first = min(look.shift, max(0, count - fits))
    columns = table.columns[first : first + fits]
    return _Room(label, column, figures, columns, first, count - first - len(columns))


def _row_label(axis: Axis, key: Key) -> str:
    if axis is Axis.SIZE:
        return f"TP{key[0]}"
    return " ".join(key)


def _head(shown: Pivot, table: Table, room: _Room) -> list[Line]:
    title: list[Span] = [(f" {_title(table)}  ", Role.TITLE)] if table.title else [(" ", Role.PLAIN)]
    title.append((" · ".join(figure.name for figure in room.figures), Role.ACCENT))
    if room.left:
        title.append((f"   ◂ {room.left} more", Role.KEY))
    if room.right:
        title.append((f"   {room.right} more ▸", Role.KEY))
    lines: list[Line] = [tuple(title)]
    down = f" {shown.down}".ljust(room.label)
    if shown.across is Axis.POINT:
        first = "".join(text.ljust(room.column * count) for text, count in _workloads(room))
        lines.append(line((" " * (room.label + 2) + first.rstrip(), Role.DIM)))
        texts = [cut(_what_varies(table.columns, key), room.column - 1) for key in room.columns]
    else:
        names = cut_apart([_row_label(shown.across, key) for key in table.columns], room.column - 1)
        texts = [names[_row_label(shown.across, key)] for key in room.columns]
    columns = "".join(text.rjust(room.column) for text in texts)
    lines.append(line((down + columns, Role.DIM)))
    return lines


def _title(table: Table) -> str:
    words = {Axis.SIZE: "TP{}", Axis.LENGTH: "{} tokens"}
    return " · ".join(words.get(axis, "{}").format(value) for axis, value in table.title)


def _workloads(room: _Room) -> list[tuple[str, int]]:
    """Each workload's name once, with the number of its columns."""
    runs: list[list[str]] = []
    for workload, *_ in room.columns:
        if runs and runs[-1][0] == workload:
            runs[-1].append(workload)
        else:
            runs.append([workload])
    return [(cut(run[0], room.column * len(run) - 1), len(run)) for run in runs]


def _what_varies(columns: Sequence[Key], key: Key) -> str:
    """`c4` where a workload's points differ in load, `1024` where they differ in length, else both."""
    mine = [other for other in columns if other[0] == key[0]]
    if len({load for _, load, _ in mine}) == 1:
        return key[2]
    return key[1] if len({length for _, _, length in mine}) == 1 else f"{key[1]} {key[2]}"


def _body(shown: Pivot, table: Table, room: _Room, source: Source) -> list[Line]:
    best = _best(shown, table, room, source)
    lines: list[Line] = []
    names = cut_apart([_row_label(shown.down, key) for key in table.rows], room.label - 2)
    for down in table.rows:
        label = names[_row_label(shown.down, down)]
        spans: list[Span] = [(f" {label}".ljust(room.label), Role.STRONG)]
        for across in room.columns:
            row = table.cells.get((down, across))
            spans += _cell(row, room, source, is_best=(down, across) in best)
        lines.append(tuple(spans))
    return lines


def _best(shown: Pivot, table: Table, room: _Room, source: Source) -> frozenset[tuple[Key, Key]]:
    """The best method of each workload point, where methods stand against each other."""
    if Axis.METHOD not in (shown.down, shown.across) or len(room.figures) > 1:
        return frozenset()
    figure = room.figures[0]
    groups: dict[Key, list[tuple[float, tuple[Key, Key]]]] = {}
    for place, row in table.cells.items():
        value = figure.value(source.measured.of(row), source.state, source.known) if row.attempts else None
        if value is not None:
            groups.setdefault(place[1] if shown.down is Axis.METHOD else place[0], []).append((value, place))
    choose = max if figure.higher_is_better else min
    return frozenset(choose(values, key=lambda one: one[0])[1] for values in groups.values() if len(values) > 1)


def _cell(row: CellRow | None, room: _Room, source: Source, *, is_best: bool) -> list[Span]:
    if row is None:
        return [(" " * room.column, Role.PLAIN)]
    cell = source.measured.of(row)
    texts = [""]
    if cell.has_figures:
        texts = [figure.text_of(cell, source.state, source.known) for figure in room.figures]
    if not any(texts):
        return [(phase_text(row.state.phase, room.column - 1).rjust(room.column), PHASE_ROLES[row.state.phase])]
    mark = cell.mark
    if len(texts) == 1:
        role = Role.WARN if mark == "!" else (Role.GOOD if is_best else Role.PLAIN)
        return [(f"{mark}{texts[0]}".rjust(room.column), role)]
    texts[0] = f"{mark}{texts[0]}"
    roles = (Role.WARN if mark == "!" else Role.PLAIN, Role.GOOD, Role.DIM)
    widths = [figure.width for figure in room.figures]
    return [(text.rjust(width), role) for text, width, role in zip(texts, widths, roles, strict=True)]


def phase_text(phase: st.CellPhase, width: int) -> str:
    """Glyph and word, or the glyph alone where both do not fit: the legend names it."""
    text = f"{GLYPHS[phase]} {phase.value}"
    return text if len(text) <= width else GLYPHS[phase]


def legend(shown: Pivot, measured: MeasuredCells, *, simulated: bool) -> list[Span]:
    """The marks that occur, the worst news first."""
    parts: list[Span] = [("SIMULATED: not measured on hardware", Role.ALARM)] if simulated else []
    rows = [row for table in shown.tables for row in table.cells.values()]
    marks = {measured.of(row).mark for row in rows if row.attempts}
    if "!" in marks:
        parts.append(("! disturbed", Role.WARN))
    if "~" in marks:
        parts.append(("~ estimated tokens", Role.DIM))
    without = phases_shown(shown) - {st.CellPhase.DONE}
    parts += [
        (f"{GLYPHS[phase]} {words}", PHASE_ROLES[phase]) for phase, words in _WHY_NO_FIGURE.items() if phase in without
    ]
    return parts


def definition_lines(figure: int, marks: Sequence[Span], width: int) -> list[Line]:
    """What the figure in the table means, then the marks of `legend`, then the other figures."""
    chosen = SHOWN_FIGURES[figure % len(SHOWN_FIGURES)]
    lines = labelled("shown", DEFINITIONS[chosen.definition], Role.STRONG, width=width, most=8)
    lines += labelled("", "median over the launches that count; green: the best method of a point", width=width)
    lines.append(EMPTY)
    lines += [line((f"   {text}", role)) for text, role in marks]
    lines.append(EMPTY)
    for other in SHOWN_FIGURES:
        if other is not chosen:
            lines += labelled("", DEFINITIONS[other.definition], width=width, most=8)
    return lines
