"""A comparison of two runs as lines of a screen: what changed, then the cells, regressions first."""

from collections.abc import Sequence

from ddconsole.compare.changes import Change
from ddconsole.compare.comparison import Compared, Comparison
from ddconsole.compare.differences import Difference, ServerDifference, Verdict
from ddconsole.compare.side import Side
from ddconsole.compare.text import (
    cells_text,
    change_text,
    changed_words,
    figures_text,
    local_time,
    named_changes,
    notes_text,
    one_sided_groups,
    other_figure_lines,
    place_text,
    ratio_text,
    side_text,
)
from screens.spans import EMPTY, Line, Role, cut, cut_apart, cut_middle, labelled, line, shown

_ROLES = {
    Verdict.REGRESSED: Role.BAD,
    Verdict.IMPROVED: Role.GOOD,
    Verdict.PERHAPS_WORSE: Role.WARN,
    Verdict.PERHAPS_BETTER: Role.LIVE,
    Verdict.CANNOT_BE_TOLD: Role.DIM,
    Verdict.UNCHANGED: Role.DIM,
}
_GLYPHS = {
    Verdict.REGRESSED: "▼",
    Verdict.IMPROVED: "▲",
    Verdict.PERHAPS_WORSE: "▽",
    Verdict.PERHAPS_BETTER: "△",
    Verdict.CANNOT_BE_TOLD: "?",
    Verdict.UNCHANGED: "=",
}
_ABOUT_FIGURES = 54
"""Cells that before, after, change and interval take beside a label."""


def comparison_page(comparison: Comparison, figure: str, width: int, *, everything: bool) -> list[Line]:
    """All lines, for a page of so many cells."""
    lines = [*_sides(comparison, width), EMPTY, *_changes(comparison, width), EMPTY]
    if comparison.refusals:
        for text in comparison.refusals:
            lines += labelled("✗", f"not comparable: {text}", Role.BAD, width=width)
        return [*lines, EMPTY, *_one_sided(comparison, width, everything=everything)]
    compared = comparison.compared(figure)
    lines.append(line((f" {compared.figure.title}, B over A, mean of each server's cells", Role.TITLE)))
    lines += [_server(one, width) for one in compared.worst_first()]
    lines += [EMPTY, *_summary(compared)]
    told = [
        one for verdict in Verdict if verdict is not Verdict.UNCHANGED or everything for one in compared.of(verdict)
    ]
    names = _names(told, max(16, width - _ABOUT_FIGURES))
    lines += [_cell(one, name, compared) for one, name in zip(told, names, strict=True)]
    lines += [EMPTY, *_one_sided(comparison, width, everything=everything)]
    others = [text.partition(" (--")[0] for text in other_figure_lines(comparison, compared.figure)]
    for text in others:
        lines += labelled("t", text, width=width)
    return lines


def _sides(comparison: Comparison, width: int) -> list[Line]:
    lines: list[Line] = []
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        lines += labelled(name, f"{side.run}  {_side(side)}", Role.STRONG, width=width)
    if comparison.simulated:
        lines.append(line((" SIMULATED: not measured on hardware", Role.ALARM)))
    return lines


def _side(side: Side) -> str:
    return side_text(side, local_time(side.began))


def _changes(comparison: Comparison, width: int) -> list[Line]:
    found = comparison.changes.found
    lines = [line((f" what changed: {changed_words(comparison)}", Role.TITLE))]
    for text in comparison.not_known:
        lines += labelled("!", text, Role.WARN, width=width)
    for name, one in named_changes(found):
        lines += _change(name, one, width)
    equal = ", ".join(f"{number} of {about}" for about, number in comparison.changes.equal.items())
    lines += labelled("equal", equal or "nothing", Role.DIM, width=width)
    if comparison.changes.one_sided:
        told = ", ".join(comparison.changes.one_sided)
        lines += labelled("", f"told by one of them only: {told}", Role.DIM, width=width)
    return lines


def _change(name: str, one: Change, width: int) -> list[Line]:
    about = {"environment": "environ"}.get(one.about, one.about)
    text = f"{name}: {change_text(one)}"
    place = place_text(one)
    lines = labelled(about, text, Role.ACCENT, width=width, most=4)
    return lines + (labelled("", place, Role.DIM, width=width) if place else [])


def _summary(compared: Compared) -> list[Line]:
    counts = {verdict: len(compared.of(verdict)) for verdict in Verdict}
    spans = [(" cells: ", Role.TITLE)]
    for verdict, number in counts.items():
        if number or verdict in (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED):
            spans.append((f" {_GLYPHS[verdict]} {number} {verdict.value} ", _ROLES[verdict] if number else Role.DIM))
    return [tuple(spans)]


def _names(told: Sequence[Difference], room: int) -> list[str]:
    """Of cells, all `room` long: server, load and length are kept, the workload's name is cut first."""
    names = [shown(one.label) for one in told]
    if max(map(len, names), default=0) > room:
        ends = [(_server_name(one), f"{one.before.point.load} {one.before.point.max_tokens}") for one in told]
        left = max(4, room - 2 - max(len(server) + len(end) for server, end in ends))
        workloads = cut_apart(list(dict.fromkeys(shown(one.before.point.workload) for one in told)), left)
        points = [
            f" {workloads[shown(one.before.point.workload)]} {end}" for one, (_, end) in zip(told, ends, strict=True)
        ]
        names = [
            cut_middle(server, max(8, room - len(point))) + point
            for (server, _), point in zip(ends, points, strict=True)
        ]
    return [cut(name, room).ljust(room) for name in names]


def _server_name(one: Difference) -> str:
    another = f" ({one.before.cell})" if one.before.place[3] else ""
    return shown(one.before.deployment.label) + another


def _cell(one: Difference, name: str, compared: Compared) -> Line:
    role = _ROLES[one.verdict]
    return line(
        (f" {_GLYPHS[one.verdict]} ", role),
        (name, Role.STRONG),
        (f" {figures_text(one, compared.figure):>17}  ", Role.PLAIN),
        (ratio_text(one.ratio), role),
        (f"  {notes_text(one)}" if notes_text(one) else "", Role.WARN),
    )


def _server(one: ServerDifference, width: int) -> Line:
    room = max(16, min(34, width - _ABOUT_FIGURES))
    role = _ROLES[one.verdict]
    return line(
        (f" {_GLYPHS[one.verdict]} ", role),
        (cut_middle(shown(one.label), room).ljust(room), Role.PLAIN),
        (f" {ratio_text(one.ratio):<24}", role),
        (f" {cells_text(one, with_verdict=False)}", Role.DIM),
    )


def _one_sided(comparison: Comparison, width: int, *, everything: bool) -> list[Line]:
    lines: list[Line] = []
    for group in one_sided_groups(comparison, everything=everything):
        lines.append(line((f" {group.title}", Role.BAD if group.lost else Role.TITLE)))
        role = Role.BAD if group.lost else Role.DIM
        lines += [line(("   ", Role.PLAIN), (cut(shown(row), width - 4), role)) for row in group.rows]
    return lines
