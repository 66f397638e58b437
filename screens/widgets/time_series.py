"""Values over time as braille dots on a fixed scale from 0, with gaps where nothing was read."""

import math
from collections.abc import Sequence

from screens.spans import Line, Role

_DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Braille bits from the bottom up, left and right column."""


def braille(values: Sequence[float | None], width: int, height: int, top: float) -> list[str]:
    """A filled graph of the newest values, two to a cell, `height` lines from top to bottom.

    Args:
        values: oldest first; None, and what is not finite, is a gap.
        width: cells.
        height: lines, each four dots high.
        top: the value at the upper edge; what is above is drawn at the edge.
    """
    columns = width * 2
    shown = [_finite(value) for value in values[-columns:]]
    padded: list[float | None] = [*([None] * (columns - len(shown))), *shown]
    levels = [None if value is None else _level(value, top, height * 4) for value in padded]
    return [_row(levels, width, (height - 1 - line) * 4) for line in range(height)]


def _row(levels: Sequence[int | None], width: int, floor: int) -> str:
    cells = []
    for cell in range(width):
        bits = 0
        for side in (0, 1):
            level = levels[cell * 2 + side]
            dots = 0 if level is None else max(0, min(4, level - floor))
            for dot in range(dots):
                bits |= _DOTS[dot][side]
        cells.append(chr(0x2800 + bits) if bits else " ")
    return "".join(cells)


def _level(value: float, top: float, dots: int) -> int:
    """Dots of a value: at least one for anything that was read, so that zero differs from a gap."""
    share = value / top if top > 0 else 0.0
    return max(1, round(max(0.0, min(1.0, share)) * dots))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def graph(title: str, values: Sequence[float | None], size: tuple[int, int], top: float, unit: str) -> list[Line]:
    """A graph with its title, newest value and scale above it, as lines of `size` (cells, lines)."""
    width, height = size
    newest = values[-1] if values else None
    now = "no reading" if newest is None else f"{newest:,.0f} {unit}"
    head: Line = ((f"{title} ", Role.DIM), (now, Role.STRONG), (f"  of {top:,.0f} {unit}", Role.DIM))
    return [head, *(((row, Role.LIVE),) for row in braille(values, width, max(1, height - 1), top))]
