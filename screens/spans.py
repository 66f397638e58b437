"""Lines of the screen as plain values: text with roles, which a widget turns into styles. Data is never markup."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import TypeAlias

from ddconsole.core import states as st
from ddconsole.core.row_text import plain_line


class Role(StrEnum):
    """What a piece of text is; the stylesheet says how it looks."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    TITLE = "title"
    KEY = "key"
    ACCENT = "accent"
    GOOD = "good"
    LIVE = "live"
    WARN = "warn"
    BAD = "bad"
    MATCH = "match"
    BADGE = "badge"
    ALARM = "alarm"


Span: TypeAlias = tuple[str, Role]
Line: TypeAlias = tuple[Span, ...]

EMPTY: Line = ()

PHASE_ROLES: dict[st.CellPhase, Role] = {
    st.CellPhase.PENDING: Role.DIM,
    st.CellPhase.RUNNING: Role.LIVE,
    st.CellPhase.DONE: Role.GOOD,
    st.CellPhase.FAILED: Role.BAD,
    st.CellPhase.STOPPED: Role.WARN,
    st.CellPhase.INTERRUPTED: Role.WARN,
    st.CellPhase.SKIPPED: Role.DIM,
    st.CellPhase.PRUNED: Role.DIM,
    st.CellPhase.BLOCKED: Role.BAD,
    st.CellPhase.UNFIT: Role.WARN,
}


shown = plain_line
"""Anything from outside as one line that is safe to show."""


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare text is plain."""
    return tuple((span, Role.PLAIN) if isinstance(span, str) else span for span in spans)


def plain(the_line: Line) -> str:
    """The text of a line."""
    return "".join(text for text, _ in the_line)


def labelled(label: str, text: object, role: Role = Role.PLAIN, *, width: int = 80, most: int = 3) -> list[Line]:
    """`label  text`, the text wrapped to `width` under itself on at most `most` lines, the last one cut with `…`."""
    head = f" {label:<7} "
    room = max(10, width - len(head) - 1)
    pieces = textwrap.wrap(shown(text), room, break_on_hyphens=False) or [""]
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], cut(" ".join(pieces[most - 1 :]), room)]
    lines = [line((head, Role.DIM), (pieces[0], role))]
    return lines + [line((" " * len(head), Role.DIM), (piece, role)) for piece in pieces[1:]]


def cut(text: str, width: int) -> str:
    """`text` in at most `width` characters, with `…` where it was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def cut_middle(text: str, width: int) -> str:
    """`text` in at most `width` characters, beginning and end kept: names often differ in their end."""
    if len(text) <= width or width < 3:
        return cut(text, width)
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def cut_apart(texts: Sequence[str], width: int) -> dict[str, str]:
    """Each text in at most `width` characters, cut so that different ones stay different.

    At its end, else in its middle, else at the beginning that the long ones share; where none of these keeps them
    apart, in the middle.
    """
    long = [text for text in texts if len(text) > width]
    alike = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*long, strict=False))))
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: cut(text, width),
        lambda text: cut_middle(text, width),
        lambda text: text if len(text) <= width else cut(f"…{text[alike:]}", width),
    )
    for way in ways:
        found = {text: way(text) for text in texts}
        if len(set(found.values())) == len(found):
            return found
    return {text: cut_middle(text, width) for text in texts}


def fitted(parts: Iterable[Span], width: int, between: str = "  ") -> Line:
    """As `joined`, with parts left out from the end until it fits: give what matters most first."""
    kept = [part for part in parts if part[0]]
    while len(kept) > 1 and sum(len(text) for text, _ in kept) + len(between) * (len(kept) - 1) > width:
        kept.pop()
    return joined(kept, between)


def joined(parts: Iterable[Span], between: str = "  ") -> Line:
    """Spans with a gap between them; empty ones are left out."""
    spans: list[Span] = []
    for part in parts:
        if not part[0]:
            continue
        if spans:
            spans.append((between, Role.PLAIN))
        spans.append(part)
    return tuple(spans)
