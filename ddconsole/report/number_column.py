"""Columns of numbers: how many decimals a column shows, its siunitx format, and its cells."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddconsole.report.latex_text import number_text
from ddconsole.report.statistics import Estimate, Sureness


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """An S column: every cell with the same number of decimals."""

    decimals: int
    integer_digits: int

    @property
    def spec(self) -> str:
        """For the head of a tabular."""
        return f"S[table-format={self.integer_digits}.{self.decimals}]"

    def cell(self, value: float | None, *, bold: bool = False) -> str:
        """A number, or an empty cell."""
        if value is None:
            return "{}"
        text = number_text(value, self.decimals)
        return rf"\bfseries {text}" if bold else text

    def noise(self, estimate: Estimate | None) -> str:
        """`[lo, hi]` for an interval, `(half)` for a spread, in small print; empty where neither is known."""
        if estimate is None or estimate.low is None or estimate.high is None:
            return ""
        if estimate.sureness is Sureness.SPREAD:
            return f"({number_text((estimate.high - estimate.low) / 2, self.decimals)})"
        low, high = number_text(estimate.low, self.decimals), number_text(estimate.high, self.decimals)
        return f"[{low}, {high}]"


def number_column(values: Iterable[float | None], decimals: int) -> NumberColumn:
    """A column for these values, with so many decimals."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    digits = max((len(number_text(abs(value), decimals).split(".")[0]) for value in known), default=1)
    return NumberColumn(decimals, digits)


def estimate_column(estimates: Sequence[Estimate | None], decimals: int) -> NumberColumn:
    """A column for these values and both ends of their noise, with so many decimals."""
    known = [one for one in estimates if one is not None]
    return number_column([value for one in known for value in (one.value, one.low, one.high)], decimals)


def decimals_for(estimates: Iterable[Estimate | None], otherwise: int, *, most: int) -> int:
    """Decimals that fit the widest noise: two significant digits of its half-width, `most` at most.

    `otherwise` counts where no noise is known.
    """
    widest = max((one.half_width or 0.0 for one in estimates if one is not None), default=0.0)
    return min(max(1 - math.floor(math.log10(widest)), 0), most) if widest > 0 else otherwise
