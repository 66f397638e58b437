"""The header: which run, where, how the link is, how far it is. What matters most stays when it gets narrow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddconsole.core import states as st
from ddconsole.core.ages import age_in_words
from ddconsole.core.deadline import dropped_cells
from ddconsole.core.run_state import Debt, RunState
from ddconsole.link.client import LinkPhase, LinkState
from screens.spans import Line, Role, Span, cut, shown
from screens.widgets.line_bar import LineBar

_SLOW = 1.0
"""Seconds of a round trip from which on it is a warning."""


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What the header says."""

    run: str
    host: str
    state: RunState
    link: LinkState
    now: float
    """Wall time on the agent's clock."""
    console_now: float
    """Wall time of the console, as the link's times are."""
    left: float | None
    simulated: bool
    control: str = ""
    """Who has control, where it is another console."""
    others: str = ""
    """Who else is there."""


class StatusHeader(LineBar):
    """The first line of every screen."""

    def show(self, facts: HeaderFacts) -> None:
        """Say how things stand."""
        self.set_line(header_line(facts, self.size.width or 80))


def header_line(facts: HeaderFacts, width: int) -> Line:
    """The header in `width` cells; parts of a higher rank go first."""
    parts = _fitting(facts, width)
    if facts.control and _width(parts) > width:
        parts = _fitting(replace(facts, control="only watching"), width)
    spans: list[Span] = [(" ", Role.PLAIN)]
    for number, (_, part) in enumerate(parts):
        if number:
            spans.append(("  ", Role.PLAIN))
        spans += part
    return tuple(spans)


def _fitting(facts: HeaderFacts, width: int) -> list[tuple[int, list[Span]]]:
    parts = [(rank, spans) for rank, spans in _parts(facts) if spans]
    while parts and _width(parts) > width:
        worst = max(rank for rank, _ in parts)
        if worst == 0:
            break
        parts = [(rank, spans) for rank, spans in parts if rank != worst]
    return parts


def _width(parts: list[tuple[int, list[Span]]]) -> int:
    return 1 + sum(sum(len(text) for text, _ in spans) for _, spans in parts) + 2 * (len(parts) - 1)


def _parts(facts: HeaderFacts) -> list[tuple[int, list[Span]]]:
    state = facts.state
    counts = state.counts()
    failed = counts.get(st.CellPhase.FAILED, 0) + counts.get(st.CellPhase.INTERRUPTED, 0)
    blocked, unfit = counts.get(st.CellPhase.BLOCKED, 0), counts.get(st.CellPhase.UNFIT, 0)
    skipped = counts.get(st.CellPhase.SKIPPED, 0) + counts.get(st.CellPhase.PRUNED, 0)
    done, total = counts.get(st.CellPhase.DONE, 0), len(state.cells)
    gone = (state.at if state.phase is st.RunPhase.ENDED else facts.now) - state.began if state.began else None
    left = facts.left if state.phase is not st.RunPhase.ENDED else None
    return [
        (0, [(cut(shown(facts.run), 24), Role.TITLE)]),
        (0, [(cut(shown(facts.host), 16) + " ", Role.STRONG), link_span(facts.link, facts.console_now)]),
        (0, [*_phase(state, old=_is_old(facts.link)), (f" {done}/{total}", Role.STRONG)]),
        (0, [(f"! {cut(shown(facts.link.trouble), 48)}", Role.ALARM)] if facts.link.trouble else []),
        (0, [(facts.control, Role.ACCENT)] if facts.control else []),
        (1, [(f"✗ {failed} failed", Role.BAD)] if failed else []),
        (2, [(f"⊘ {blocked} blocked", Role.BAD)] if blocked else []),
        (6, [(f"◇ {unfit} unfit", Role.WARN)] if unfit else []),
        (5, [(f"– {skipped} skipped", Role.DIM)] if skipped else []),
        (5, [(f"{span_of_time(gone)} gone", Role.DIM)] if gone is not None else []),
        (3, [(f"~{span_of_time(left)} left", Role.PLAIN)] if left else []),
        (2, _deadline(state)),
        (1, _debts(list(state.debts.values()))),
        (4, [(facts.others, Role.DIM)] if facts.others else []),
        (0, [(" SIMULATED ", Role.ALARM)] if facts.simulated else []),
    ]


def _debts(debts: Sequence[Debt]) -> list[Span]:
    """One that could not be put back before others, and in the colour of trouble."""
    if not debts:
        return []
    first = next((one for one in debts if one.problem), debts[0])
    more = f" +{len(debts) - 1}" if debts[1:] else ""
    word = "not put back" if first.problem else "debt"
    return [(f"{word}: {shown(first.what)}{more}", Role.BAD if first.problem else Role.WARN)]


def _deadline(state: RunState) -> list[Span]:
    deadline = state.deadline
    if deadline is None or not deadline.at:
        return []
    number = len(dropped_cells(state))
    cells = "1 cell" if number == 1 else f"{number} cells"
    will = "did" if state.phase is st.RunPhase.ENDED else "will"
    spans = [(f"until {shown(deadline.text)}", Role.PLAIN)]
    return [*spans, (f", {cells} {will} not fit", Role.WARN)] if number else spans


def _is_old(link: LinkState) -> bool:
    """What is known may have changed since."""
    return link.phase not in {LinkPhase.UP, LinkPhase.OFFLINE}


def _phase(state: RunState, *, old: bool) -> list[Span]:
    roles = {
        st.RunPhase.RUNNING: Role.LIVE,
        st.RunPhase.PAUSED: Role.WARN,
        st.RunPhase.DRAINING: Role.WARN,
        st.RunPhase.STOPPING: Role.WARN,
        st.RunPhase.ENDED: Role.GOOD if state.outcome == "complete" else Role.WARN,
    }
    glyphs = {
        st.RunPhase.RUNNING: "▶",
        st.RunPhase.PAUSED: "‖",
        st.RunPhase.DRAINING: "▷",
        st.RunPhase.STOPPING: "■",
        st.RunPhase.ENDED: "✓" if state.outcome == "complete" else "■",
    }
    word = shown(state.outcome) if state.phase is st.RunPhase.ENDED and state.outcome else state.phase.value
    if old:
        return [(f"? {word}", Role.DIM)]
    return [(f"{glyphs[state.phase]} {word}", roles[state.phase])]


def link_span(link: LinkState, console_now: float) -> Span:
    """The link in two or three words, with the age of what is known."""
    age = age_in_words(console_now - (link.heard if link.heard is not None else link.since))
    match link.phase:
        case LinkPhase.UP:
            trip = f" {round_trip(link.round_trip)}" if link.round_trip is not None else ""
            slow = link.round_trip is not None and link.round_trip >= _SLOW
            return (f"up{trip}{' bridged' if link.bridged else ''}", Role.WARN if slow else Role.GOOD)
        case LinkPhase.CONNECTING:
            return (f"connecting {age}", Role.WARN)
        case LinkPhase.SILENT | LinkPhase.STALLED | LinkPhase.AGENT_GONE | LinkPhase.RECONNECTING:
            return (f"{_WORDS[link.phase]} {age}", Role.WARN)
        case LinkPhase.DOWN:
            return (f"down {age}", Role.BAD)
        case LinkPhase.OFFLINE:
            return (f"offline {age}", Role.DIM)


_WORDS = {
    LinkPhase.SILENT: "silent",
    LinkPhase.STALLED: "agent stalled",
    LinkPhase.AGENT_GONE: "agent gone",
    LinkPhase.RECONNECTING: "link lost",
}


def round_trip(seconds: float) -> str:
    """`12 ms`, `3.2 s`."""
    return f"{seconds:.1f} s" if seconds >= _SLOW else f"{seconds * 1000:.0f} ms"


def span_of_time(seconds: float) -> str:
    """`48 s`, `12 min`, `1h31`: hours and minutes are told apart from minutes and seconds."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}"
