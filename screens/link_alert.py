"""What is wrong with the link, in one line: since when, what goes on meanwhile, and when it is tried again."""

import time

from ddconsole.core import states as st
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
    """What to say of the link; None where it is as it should be.

    Args:
        state: of the run.
        link: to its agent.
        host: where it runs.
        now: wall time of the console, as the link's times are.
    """
    goes_on = "" if state.phase is st.RunPhase.ENDED else ", sweep goes on"
    since = clock_of_day(link.heard if link.heard is not None else link.since)
    match link.phase:
        case LinkPhase.UP:
            return None
        case LinkPhase.OFFLINE:
            return Alert(link.detail, "", Role.WARN) if state.phase is not st.RunPhase.ENDED and link.detail else None
        case LinkPhase.CONNECTING:
            waits = link.next_try is not None
            trying = f"; {next_try(link, now)}" if waits else ""
            return Alert(f"connecting to {host}: {link.detail}{trying}", _TRY if waits else "", Role.WARN)
        case LinkPhase.DOWN:
            return Alert(f"{link.detail or f'no answer from {host}'}. Values are old{goes_on}.", _TRY, Role.BAD)
        case LinkPhase.SILENT:
            return Alert(f"nothing heard since {since}{goes_on}: {link.detail}", "", Role.WARN)
        case LinkPhase.STALLED | LinkPhase.AGENT_GONE | LinkPhase.RECONNECTING:
            what = _LOST_WORDS[link.phase]
            return Alert(f"{what} since {since}{goes_on}; {next_try(link, now)}", _TRY, Role.BAD)


def next_try(link: LinkState, now: float) -> str:
    """`next try in 4 s: why`, or what is being done."""
    if link.next_try is None or link.next_try <= now:
        return f"trying: {link.detail}" if link.detail else "trying"
    return f"next try in {link.next_try - now:.0f} s: {link.detail}"


def clock_of_day(wall: float) -> str:
    """`23:10:04`, in the console's time zone."""
    return time.strftime("%H:%M:%S", time.localtime(wall))
