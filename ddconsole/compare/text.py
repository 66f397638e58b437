"""A comparison in words: lines for a terminal."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddconsole.compare.changes import Change
from ddconsole.compare.comparison import Compared, Comparison, OneSided
from ddconsole.compare.differences import Difference, ServerDifference, Verdict, is_too_wide
from ddconsole.compare.side import Figure, Side
from ddconsole.core.visible_text import visible_line
from ddconsole.report.statistics import LAUNCHES_FOR_AN_INTERVAL, Estimate, Sureness

NOTHING = "–"
"""In place of a value that is not there."""
_LONGEST_VALUE = 60


def comparison_lines(comparison: Comparison, figure: str, *, everything: bool = False) -> list[str]:
    """All that is said of one figure, regressions first.

    Args:
        comparison: the two runs.
        figure: its id.
        everything: list also the cells that did not change.
    """
    return [visible_line(line) for line in _lines(comparison, comparison.compared(figure), everything)]


def _lines(comparison: Comparison, compared: Compared, everything: bool) -> Iterator[str]:
    yield from head_lines(comparison)
    yield ""
    yield from change_lines(comparison)
    yield ""
    if comparison.refusals:
        yield from (f"not comparable: {text}" for text in comparison.refusals)
        yield ""
    else:
        yield from figure_lines(comparison, compared, everything)
        yield ""
    for group in one_sided_groups(comparison, everything=everything):
        yield group.title
        yield from (f"    {row}" for row in group.rows)
    yield from other_figure_lines(comparison, compared.figure)


def head_lines(comparison: Comparison) -> list[str]:
    """Which two runs."""
    sides = (comparison.before, comparison.after)
    width = max(len(side.run) for side in sides)
    lines = [
        f"{name}  {side.run.ljust(width)}  {side_text(side, local_time(side.began))}"
        for name, side in zip("AB", sides, strict=True)
    ]
    if comparison.before.simulated and comparison.after.simulated:
        lines.append("SIMULATED: neither was measured on hardware")
    return lines


def local_time(at: float) -> str:
    """`2026-09-21 14:13`, in this machine's time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def side_text(side: Side, began: str) -> str:
    """What a run is, in a line; `began` is its time in words."""
    measured = sum(1 for cell in side.cells.values() if cell.observed)
    launches = f"{side.launches} launch{'' if side.launches == 1 else 'es'}"
    mark = ", simulated" if side.simulated else ""
    return f"{side.plan_name} on {side.host}, begun {began}, {measured} cells measured on {launches}{mark}"


def change_lines(comparison: Comparison) -> list[str]:
    """What changed around the figures, and how much did not."""
    changes = comparison.changes
    lines = [f"what changed: {changed_words(comparison)}"]
    rows = [(one.about, name, change_text(one), place_text(one)) for name, one in named_changes(changes.found)]
    lines += aligned(rows, 2)
    equal = ", ".join(f"{number} of {_equal_words(about)}" for about, number in changes.equal.items())
    lines.append(f"  equal: {equal or 'nothing'}")
    if changes.one_sided:
        lines.append(f"  told by one of them only, so not compared: {', '.join(changes.one_sided)}")
    lines += [f"  {text}" for text in comparison.not_known]
    return lines


def changed_words(comparison: Comparison) -> str:
    """How many changes were found; `nothing` is said only of journals that were read to their end."""
    return str(len(comparison.changes.found) or ("not known" if comparison.not_known else "nothing"))


def _equal_words(about: str) -> str:
    return {"plan": "the plan", "environment": "the environment", "server": "the servers' arguments"}[about]


def named_changes(found: Iterable[Change]) -> Iterator[tuple[str, Change]]:
    """Each change with its name, and below it what follows from it."""
    for change in found:
        yield change.name, change
        yield from ((f"follows: {one.name}", one) for one in change.follows)


def change_text(change: Change) -> str:
    """`triton → flashinfer`."""
    return f"{_value(change.before)} → {_value(change.after)}"


def _value(value: str | None) -> str:
    if value is None:
        return NOTHING
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


def place_text(change: Change) -> str:
    """Where a change holds, and what is to be said of it."""
    return ": ".join(part for part in (change.where, change.note) if part)


def figure_lines(comparison: Comparison, compared: Compared, everything: bool) -> list[str]:
    """The cells of one figure: regressed, improved, perhaps, what cannot be told, unchanged."""
    count = len(compared.differences)
    if not count:
        return [f"{compared.figure.title}: no cell has it in both"]
    lines = [f"{compared.figure.title}, median, B over A; {_range_words(compared.differences)}"]
    lines += _server_lines(compared.worst_first())
    for verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
        some = compared.of(verdict)
        lines.append(f"  {verdict.value}: {len(some) or 'none'} of {count}")
        lines += table_lines(some, compared.figure)
    for verdict in (Verdict.PERHAPS_WORSE, Verdict.PERHAPS_BETTER):
        some = compared.of(verdict)
        if some:
            lines.append(f"  {verdict.value}: {len(some)}; {_why_perhaps(some)}")
            lines += table_lines(some, compared.figure)
    unsure = compared.of(Verdict.CANNOT_BE_TOLD)
    if unsure:
        lines.append(f"  {Verdict.CANNOT_BE_TOLD.value}: {len(unsure)}; {why_not_told(unsure)}")
        lines += table_lines(unsure, compared.figure)
    unchanged = compared.of(Verdict.UNCHANGED)
    lines.append(f"  unchanged: {len(unchanged)}{_how_sure(unchanged, comparison.least * 100)}")
    if everything:
        lines += table_lines(unchanged, compared.figure)
    if comparison.other_prompts:
        lines.append(f"  other prompts under the same name, not compared: {', '.join(comparison.other_prompts)}")
    return lines


def why_not_told(some: Sequence[Difference]) -> str:
    """`one launch, an interval needs three`; of several cells the fewest launches and the most."""
    fewest = sorted({min(one.launches) for one in some})
    ends = [str(fewest[0])] if len(fewest) == 1 else [str(fewest[0]), str(fewest[-1])]
    return f"{' to '.join(ends)} launch{'' if fewest == [1] else 'es'}, an interval needs {LAUNCHES_FOR_AN_INTERVAL}"


def _why_perhaps(some: Sequence[Difference]) -> str:
    reasons = {
        "each interval alone says so and so does the server as a whole; of so many cells that is not certain": any(
            one.p is not None for one in some
        ),
        "every prompt says so on fewer than three launches, which may differ as much": any(
            one.p is None for one in some
        ),
    }
    return "; or ".join(text for text, holds in reasons.items() if holds)


def _range_words(differences: Sequence[Difference]) -> str:
    kinds = {one.ratio.sureness for one in differences}
    words = []
    if Sureness.INTERVAL in kinds:
        words.append("[95 % interval over launches]")
    if kinds - {Sureness.INTERVAL}:
        words.append("(range of the prompts where launches are fewer than three: no interval)")
    unpaired = any(not one.prompts for one in differences)
    return ", ".join([*words, "same prompts" if not unpaired else "same prompts where there are any"])


def _how_sure(unchanged: Sequence[Difference], least: float) -> str:
    """How large a change could hide in cells that are told as unchanged; `least` in percent."""
    reaches = [
        max(abs(one.ratio.low - 1), abs(one.ratio.high - 1))
        for one in unchanged
        if one.ratio.sureness is Sureness.INTERVAL and one.ratio.low is not None and one.ratio.high is not None
    ]
    unsure = len(unchanged) - len(reaches)
    words = []
    if reaches:
        reaches.sort()
        words.append(f"half of them within ±{reaches[len(reaches) // 2]:.1%}, all within ±{reaches[-1]:.1%}")
    if unsure:
        words.append(f"{unsure} without an interval, each within {least:.3g} %")
    return f"; {', '.join(words)}" if words else ""


def table_lines(differences: Sequence[Difference], figure: Figure) -> list[str]:
    """One line a cell: which, before and after, the change with its interval, what is to be said of it."""
    return aligned(
        [(one.label, figures_text(one, figure), ratio_text(one.ratio), notes_text(one)) for one in differences], 4
    )


def aligned(rows: Sequence[tuple[str, ...]], indent: int) -> list[str]:
    """Rows in columns that line up; the last one is as long as it is."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        texts = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append((" " * indent + "  ".join([*texts, row[-1]])).rstrip())
    return lines


def figures_text(one: Difference, figure: Figure) -> str:
    """`124.2 → 118.0`."""
    old, new = one.old.value * figure.scale, one.new.value * figure.scale
    return f"{old:.{figure.decimals}f} → {new:.{figure.decimals}f}"


def ratio_text(ratio: Estimate) -> str:
    """`-5.0 % [-5.6, -4.4]`; round brackets for a range that is no interval."""
    text = f"{percent(ratio.value)} %"
    if ratio.low is None or ratio.high is None:
        return text
    if is_too_wide(ratio.low, ratio.high):
        return f"{text} (cannot be told: {ratio.low:.2f} to {ratio.high:.1f} times)"
    ends = f"{percent(ratio.low)}, {percent(ratio.high)}"
    return f"{text} [{ends}]" if ratio.sureness is Sureness.INTERVAL else f"{text} ({ends})"


def percent(ratio: float) -> str:
    """The change as a signed percentage without its sign of unit."""
    change = (ratio - 1) * 100
    text = f"{abs(change):.1f}"
    return text if text == "0.0" else f"{'-' if change < 0 else '+'}{text}"


def notes_text(one: Difference) -> str:
    """What is to be said of a cell's figures."""
    notes = []
    for name, cell in (("A", one.before), ("B", one.after)):
        if cell.flagged:
            notes.append(f"disturbed in {name}")
    if not one.prompts:
        notes.append("no prompt in common")
    return ", ".join(notes)


def _server_lines(servers: Sequence[ServerDifference]) -> list[str]:
    rows = [(one.label, ratio_text(one.ratio), cells_text(one)) for one in servers]
    return ["  by server, mean of its cells", *aligned(rows, 4)]


def cells_text(one: ServerDifference, *, with_verdict: bool = True) -> str:
    """`regressed; 9 cells: 9 regressed`."""
    told = [f"{one.regressed} regressed" if one.regressed else "", f"{one.improved} improved" if one.improved else ""]
    words = ", ".join(text for text in told if text)
    verdict = f"{one.verdict.value}; " if with_verdict and one.verdict is not Verdict.UNCHANGED else ""
    return f"{verdict}{one.cells} cell{'' if one.cells == 1 else 's'}{': ' if words else ''}{words}"


_FEW = 3
"""Cells of a server that are listed one by one where one run alone measured them."""


@dataclass(frozen=True, slots=True)
class OneSidedGroup:
    """Cells that one run alone measured, in words."""

    title: str
    lost: bool
    rows: tuple[str, ...]


def one_sided_groups(comparison: Comparison, *, everything: bool = False) -> list[OneSidedGroup]:
    """Those that the second run tried in vain first; many of one server for one reason are one row."""
    only_first = [one for one in comparison.one_sided if one.in_first and not one.lost]
    groups = (
        ("measured in A, and not to be had in B", comparison.lost),
        ("measured in A only", only_first),
        ("measured in B only", [one for one in comparison.one_sided if not one.in_first]),
    )
    return [
        OneSidedGroup(f"{title}: {len(some)}", some[0].lost, tuple(_one_sided_rows(some, everything=everything)))
        for title, some in groups
        if some
    ]


def _one_sided_rows(some: Sequence[OneSided], *, everything: bool) -> Iterator[str]:
    by_server: dict[tuple[str, str], list[OneSided]] = {}
    for one in some:
        by_server.setdefault((one.cell.deployment.label, one.because), []).append(one)
    for (server, because), cells in by_server.items():
        if len(cells) > _FEW and not everything:
            yield f"{server}, {len(cells)} cells  {because}"
        else:
            yield from (f"{one.cell.label}  {because}" for one in cells)


def other_figure_lines(comparison: Comparison, shown: Figure) -> list[str]:
    """What the other figures come to, in a line each."""
    lines = []
    for one in comparison.figures:
        if one.figure is shown or not one.differences:
            continue
        counts = {verdict: len(one.of(verdict)) for verdict in Verdict if verdict is not Verdict.UNCHANGED}
        told = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
        if told:
            lines.append(f"{one.figure.title}: {told} of {len(one.differences)} (--figure {one.figure.id})")
    return lines
