"""A chart drawn by plotext into text: one figure at a time, cleared before it is drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import plotext
from rich.text import Text
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from screens.spans import Role
from screens.widgets.roles import ROLE_CLASSES, RoleStyles

_FRAMED = 12
"""Lines from which on a drawing has room for a frame."""
_TICK = 3
"""Lines from one number of the upward axis to the next, at least."""
_BAR = (79, 209, 232)
_COLORS = (
    (95, 211, 141),
    (79, 209, 232),
    (240, 185, 90),
    (195, 166, 255),
    (108, 182, 255),
    (255, 123, 114),
    (240, 244, 248),
    (139, 149, 165),
)
_MARKS = ("o", "x", "+", "*", "#", "@", "%", "&")


@dataclass(frozen=True)
class ChartData:
    """What is drawn. With `lines` points are joined over numbers; else bars stand beside labels."""

    title: str
    labels: Sequence[str] = ()
    values: Sequence[float] = ()
    lines: Mapping[str, Sequence[tuple[float, float]]] | None = None
    logarithmic: bool = False
    """Powers of two stand at equal distances."""


class Chart(Widget):
    """Shows one chart; drawn again only when its data or its size changed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*ROLE_CLASSES}

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self.styles_of = RoleStyles(self)
        self._data: ChartData | None = None
        self._drawn: tuple[ChartData, int, int] | None = None
        self._strips: list[Strip] = []

    def set_data(self, data: ChartData | None) -> None:
        """Show this."""
        if data != self._data:
            self._data = data
            self.refresh()

    def notify_style_update(self) -> None:
        """Styles changed: draw everything again."""
        super().notify_style_update()
        self.styles_of.forget()
        self._drawn = None
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Another size, another drawing."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the drawing."""
        width = self.size.width
        strips = self._draw()
        strip = strips[y] if y < len(strips) else Strip.blank(width)
        return strip.adjust_cell_length(width).apply_style(self.styles_of.ground)

    def _draw(self) -> list[Strip]:
        data, (width, height) = self._data, self.size
        if data is None or width < 20 or height < 5:
            text = Text("  nothing to draw yet" if data is None else "", style=self.styles_of.of(Role.DIM))
            return [Strip(text.render(self.app.console))]
        if self._drawn != (data, width, height):
            self._drawn = (data, width, height)
            head = [Text(f" {data.title}", style=self.styles_of.of(Role.ACCENT))]
            if data.lines is not None:
                head.append(legend_text(tuple(data.lines)))
            drawn = Text.from_ansi(chart_text(data, width, height - len(head)))
            self._strips = [Strip(one.render(self.app.console, end="")) for one in (*head, *drawn.split())]
        return self._strips


def chart_text(data: ChartData, width: int, height: int) -> str:
    """The drawing with its escape sequences, made by plotext, whose figure is one for the whole process."""
    plotext.clear_figure()
    try:
        plotext.theme("clear")
        plotext.plot_size(width, height)
        if data.lines is not None:
            _draw_lines(data, data.lines, height)
            plotext.frame(height >= _FRAMED)
        else:
            plotext.simple_bar(list(data.labels), list(data.values), width=width - 2, color=_BAR)
        return str(plotext.build())
    finally:
        plotext.clear_figure()


def legend_text(names: Sequence[str]) -> Text:
    """Which mark and colour is whose, on one line: inside the drawing it would lie on the curves."""
    text = Text(no_wrap=True)
    for number, name in enumerate(names):
        red, green, blue = _COLORS[number % len(_COLORS)]
        text.append(f" {_MARKS[number % len(_MARKS)]} {name} ", f"rgb({red},{green},{blue})")
    return text


def round_ticks(highest: float, most: int) -> list[float]:
    """Numbers for an axis from 0 to just above `highest`, in steps of 1, 2 or 5 times a power of ten.

    Args:
        highest: what the axis has to reach.
        most: how many steps there may be.
    """
    if not 0 < highest < math.inf:
        highest = 1.0
    least = highest / max(most, 1)
    power = math.floor(math.log10(least))
    exponent, factor = next(
        (exponent, factor)
        for exponent in (power, power + 1)
        for factor in (1, 2, 5)
        if factor * 10.0**exponent >= least * (1 - 1e-9)
    )
    steps = max(1, math.ceil(highest / (factor * 10.0**exponent) - 1e-9))
    return [round(factor * number * 10.0**exponent, max(0, -exponent)) for number in range(steps + 1)]


def _draw_lines(data: ChartData, lines: Mapping[str, Sequence[tuple[float, float]]], height: int) -> None:
    place = math.log2 if data.logarithmic else float
    for number, points in enumerate(lines.values()):
        across, up = [place(x) for x, _ in points], [y for _, y in points]
        plotext.plot(across, up, color=_COLORS[number % len(_COLORS)], marker="braille")
        # Which of the lines a point belongs to shows without colour too.
        plotext.scatter(across, up, color=_COLORS[number % len(_COLORS)], marker=_MARKS[number % len(_MARKS)])
    upwards = round_ticks(max((y for points in lines.values() for _, y in points), default=1.0), height // _TICK)
    plotext.ylim(0, upwards[-1])
    plotext.yticks(upwards, [f"{y:g}" for y in upwards])
    ticks = sorted({x for points in lines.values() for x, _ in points})
    plotext.xticks([place(x) for x in ticks], [f"{x:g}" for x in ticks])
