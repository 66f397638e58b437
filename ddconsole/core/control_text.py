"""Who controls a run, in words."""

import time

from ddconsole.core.ages import age_in_words
from ddconsole.core.run_state import Controller, RunState
from ddconsole.core.wire import Watchers


def has_control_since(controller: Controller, now: float) -> str:
    """`ann@laptop (pts/3) has had control since 14:02`."""
    return f"{controller.who()} has had control since {since(controller, now)}"


def since(controller: Controller, now: float) -> str:
    """`14:02`, with the day where it is another one. In the time zone of who reads."""
    then = time.localtime(controller.since)
    same_day = time.localtime(now)[:3] == then[:3]
    return time.strftime("%H:%M" if same_day else "%d %b %H:%M", then)


def is_there(state: RunState, watchers: Watchers | None, elapsed: float) -> str:
    """Whether the console that has control is there: `connected`, `last seen 3 s ago`; empty where it is not known.

    Args:
        state: the run.
        watchers: as the agent said it.
        elapsed: seconds since it did.
    """
    controller = state.controller
    if watchers is None or controller is None or watchers.controller != controller.console:
        return ""
    if watchers.controller_here:
        return "connected"
    return f"last seen {age_in_words((watchers.controller_age or 0.0) + elapsed)} ago"
