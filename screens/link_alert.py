"""What is wrong with the link, in one line: since when, what goes on meanwhile, and when it is tried again."""

import re
import time

from ddconsole.core import states as st
from ddconsole.core.ages import age_in_words
from ddconsole.core.run_state import RunState
from ddconsole.link.client import LinkPhase, LinkState
from screens.spans import Role
from screens.taking_control import Alert

LOST = frozenset({LinkPhase.STALLED, LinkPhase.AGENT_GONE, LinkPhase.RECONNECTING})
"""Phases that a try at once may end."""
_LOST_WORDS = {
    LinkPhase.STALLED: "agent stalled",
    LinkPhase.AGENT_GONE: "agent gone",
    LinkPhase.RECONNECTING: "link lost",
}
_TRY = "ctrl+r try now"


def link_alert(state: RunState, link: LinkState, host: str, now: float) -> Alert | None:
    """What to say of the link; None where it is as it should be. What matters most comes first: lines are cut.

    Args:
        state: of the run.
        link: to its agent.
        host: where it runs.
        now: wall time of the console, as the link's times are.
    """
    goes_on = "" if state.phase is st.RunPhase.ENDED else "; sweep goes on"
    since = clock_of_day(link.heard if link.heard is not None else link.since)
    match link.phase:
        case LinkPhase.UP:
            return None
        case LinkPhase.OFFLINE:
            return _offline_alert(state, link, host, now)
        case LinkPhase.CONNECTING:
            waits = link.next_try is not None
            after = f"; try in {max(0.0, link.next_try - now):.0f} s" if link.next_try is not None else ""
            return Alert(f"connecting to {host}", _TRY if waits else "", Role.WARN, short_reason(link, host), after)
        case LinkPhase.DOWN:
            why = " → ".join(filter(None, (short_reason(link, host), link.detail.partition(" → ")[2])))
            return Alert("", _TRY, Role.BAD, why or f"no answer from {host}", goes_on)
        case LinkPhase.SILENT:
            return Alert(f"nothing heard since {since}", "", Role.WARN, short_reason(link, host), goes_on)
        case LinkPhase.STALLED | LinkPhase.AGENT_GONE | LinkPhase.RECONNECTING:
            waits = link.next_try is not None and link.next_try > now
            text = f"{_LOST_WORDS[link.phase]} {since}" + ("" if waits else ", trying")
            after = f"; try in {link.next_try - now:.0f} s{goes_on}" if waits and link.next_try is not None else goes_on
            return Alert(text, _TRY, Role.BAD, short_reason(link, host), after)


def _offline_alert(state: RunState, link: LinkState, host: str, now: float) -> Alert | None:
    """Of a copy whose host is lost: why, and how old it is."""
    if link.lost:
        age = f"; the copy here is {age_in_words(now - link.heard)} old" if link.heard is not None else ""
        return Alert(f"{host} lost", "", Role.WARN, short_reason(link, host), age)
    return Alert(link.detail, "", Role.WARN) if state.phase is not st.RunPhase.ENDED and link.detail else None


def short_reason(link: LinkState, host: str) -> str:
    """Why, without what stands beside it on the screen or helps only who looks it up: host, error numbers, advice."""
    text = (link.lost or link.detail).partition(" → ")[0].removeprefix(f"{host}: ")
    return re.sub(r"\bE\d{3} |\[Errno -?\d+\] ", "", text.removeprefix("the link was lost: "))


def clock_of_day(wall: float) -> str:
    """`23:10:04`, in the console's time zone."""
    return time.strftime("%H:%M:%S", time.localtime(wall))
