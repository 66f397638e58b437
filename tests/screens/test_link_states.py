"""The link on every screen: a state by name, its age, what becomes of the sweep, and when it is tried again."""

import re
from dataclasses import replace

import pytest

from ddconsole.core.run_state import RunState
from ddconsole.link.client import LinkPhase, LinkState
from screens.link_alert import link_alert
from screens.widgets.status_header import link_span
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, settled

NOW = 1_800_000_000.0
LINK = LinkState(LinkPhase.UP, since=NOW - 600, heard=NOW - 14, round_trip=0.012)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (LinkPhase.UP, "up 12 ms"),
        (LinkPhase.SILENT, "silent 14 s"),
        (LinkPhase.STALLED, "agent stalled 14 s"),
        (LinkPhase.AGENT_GONE, "agent gone 14 s"),
        (LinkPhase.RECONNECTING, "link lost 14 s"),
        (LinkPhase.DOWN, "down 14 s"),
        (LinkPhase.OFFLINE, "offline"),
    ],
)
def test_every_state_has_a_name_and_an_age(phase: LinkPhase, words: str) -> None:
    assert link_span(replace(LINK, phase=phase), NOW)[0] == words


def test_a_slow_agent_and_a_bridge_are_told() -> None:
    assert link_span(replace(LINK, round_trip=3.24), NOW)[0] == "up 3.2 s"
    assert link_span(replace(LINK, round_trip=3.24), NOW)[1] != link_span(LINK, NOW)[1]
    assert link_span(replace(LINK, bridged=True), NOW)[0] == "up 12 ms bridged"


@pytest.mark.parametrize(
    ("phase", "what"),
    [
        (LinkPhase.RECONNECTING, "link lost since"),
        (LinkPhase.STALLED, "agent stalled since"),
        (LinkPhase.AGENT_GONE, "agent gone since"),
    ],
)
def test_a_loss_says_since_when_what_goes_on_and_when_it_is_tried(phase: LinkPhase, what: str) -> None:
    link = replace(LINK, phase=phase, detail="connection reset", next_try=NOW + 4.2)
    alert = link_alert(RunState(), link, "ct200", NOW)
    assert alert is not None
    assert alert.keys == "ctrl+r try now"
    # What fits beside the key at 80 columns.
    assert re.search(rf"{what} \d\d:\d\d:\d\d, sweep goes on; next try in 4 s", alert.text[:63])
    trying = replace(link, next_try=None, detail="auth …")
    assert "trying: auth …" in str(link_alert(RunState(), trying, "ct200", NOW))


def test_a_refusal_says_why_before_all_else() -> None:
    link = replace(LINK, phase=LinkPhase.DOWN, detail="ct200: auth: E105 Permission denied")
    alert = link_alert(RunState(), link, "ct200", NOW)
    assert alert is not None
    assert alert.text.startswith("ct200: auth: E105 Permission denied. ")


async def test_all_screens_show_the_state_of_the_link() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        feed.set_link(LinkPhase.STALLED, "ct200 answers", silent=20)
        await settled(pilot)
        for key in "12345":
            await pressed(pilot, key)
            await settled(pilot)
            lines = screen_lines(app)
            assert re.search(r"agent stalled \d+ s", lines[0])
            assert "? running" in lines[0]
            assert any("agent stalled since" in line and "ctrl+r" in line for line in lines[:4])
