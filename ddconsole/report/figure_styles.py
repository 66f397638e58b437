"""How methods look in figures: told apart in grey too, by lightness and by pattern or mark."""

from collections.abc import Sequence

from ddconsole.report.latex_text import folded

BARS = (
    "fill=white",
    "fill=ddcA, postaction={pattern=north east lines}",
    "fill=ddcB",
    "fill=ddcC",
    "fill=ddcD",
    "fill=ddcE",
    "fill=ddcF",
    "fill=ddcG",
    "fill=ddcB, postaction={pattern=crosshatch dots}",
    "fill=ddcC, postaction={pattern=north west lines}",
    "fill=white, postaction={pattern=horizontal lines}",
    "fill=white, postaction={pattern=grid}",
)
"""Fills, in the order of methods: the colours go from light to dark, so they stay in order in grey."""

LINES = ("*", "square*", "triangle*", "diamond*", "pentagon*")
"""Marks of curves."""

REFERENCES = ("dashed", "densely dashdotted", "loosely dashed", "dashdotdotted")
"""Horizontal lines of methods without a budget."""

BASELINE = "densely dotted"


_LEGEND_WIDTHS = ((12, 5), (20, 4), (26, 3), (42, 2))
"""Longest name in characters, and how many names then stand side by side."""


def legend_columns(names: Sequence[str]) -> int:
    """How many names of a legend stand side by side on a page."""
    longest = max((len(folded(name)) for name in names), default=0)
    return next((columns for characters, columns in _LEGEND_WIDTHS if longest <= characters), 1)


def bar_style(number: int) -> str:
    """Of the method with this place, from 0; after the last it begins again."""
    return BARS[number % len(BARS)]
