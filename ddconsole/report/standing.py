"""What a table or figure stands on, in words: requests, launches, the load, and what is not in it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ddconsole.report.grid import LOAD_MODES
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult
from ddconsole.report.statistics import Estimate, Sureness


def sample_words(cells: Sequence[CellResult]) -> str:
    """How much each figure stands on, as a sentence."""
    figures = [cell.figures for cell in cells if cell.figures]
    if not figures:
        return "No cell has figures."
    requests = _span({one.succeeded for one in figures}, "request", "requests")
    repetitions = _span({one.repetitions for one in figures}, "repetition", "repetitions")
    launches = _span({one.launches for one in figures}, "launch", "launches")
    return f"Each cell: {requests} in {repetitions} on {launches}."


def load_words(cells: Iterable[CellResult]) -> str:
    """The load modes of these cells, as a sentence."""
    kinds = dict.fromkeys(cell.point.kind for cell in cells)
    return f"Load: {'; '.join(LOAD_MODES.get(kind, kind) for kind in kinds)}."


def missing_words(cells: Sequence[CellResult]) -> str:
    """How many of these cells have no figures or flagged ones, by their marks; empty where all are sound."""
    missing = Counter(cell.missing_mark.sign for cell in cells if cell.figures is None)
    words = []
    if missing:
        by_mark = ", ".join(f"{number} {sign}" for sign, number in missing.items())
        words.append(f"Without figures: {by_mark} of {len(cells)} cells.")
    flagged = sum(1 for cell in cells if Mark.FLAGGED in cell.marks)
    if flagged:
        words.append(f"Flagged: {flagged}.")
    return " ".join(words)


def error_bar_words(estimates: Iterable[Estimate | None]) -> str:
    """What the error bars of a figure are, as sentences."""
    kinds = {one.sureness for one in estimates if one is not None}
    words = []
    if Sureness.INTERVAL in kinds:
        words.append("Error bars: 95 % interval over launches.")
    if Sureness.SPREAD in kinds:
        words.append(
            "Error bars: central 95 % of the requests where there are fewer than three launches, which is no interval."
        )
    return " ".join(words) or "No noise is drawn."


def _span(numbers: set[int], one: str, many: str) -> str:
    low, high = min(numbers), max(numbers)
    if low == high:
        return f"{low} {one if low == 1 else many}"
    return f"{low} to {high} {many}"
