"""The link on every screen: a state by name, its age, what becomes of the sweep, and when it is tried again."""

import re
from dataclasses import replace

import pytest

from ddconsole.core.events import Entry, RunEnded
from ddconsole.core.fold import apply
from ddconsole.core.run_state import RunState
from ddconsole.link.client import LinkPhase, LinkState
from screens.link_alert import link_alert
from screens.widgets.status_header import link_span
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, settled

NOW = 1_800_000_000.0
AT_80 = 80 - len("ctrl+r try now") - 3
"""Columns beside the key."""
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
        (LinkPhase.OFFLINE, "offline 14 s"),
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
        (LinkPhase.RECONNECTING, "link lost"),
        (LinkPhase.STALLED, "agent stalled"),
        (LinkPhase.AGENT_GONE, "agent gone"),
    ],
)
def test_a_loss_says_since_when_why_when_it_is_tried_and_what_goes_on(phase: LinkPhase, what: str) -> None:
    link = replace(LINK, phase=phase, detail="ct200: the link was lost: Connection reset by peer", next_try=NOW + 4.2)
    alert = link_alert(RunState(), link, "ct200", NOW)
    assert alert is not None
    assert alert.keys == "ctrl+r try now"
    assert re.fullmatch(
        rf"{what} \d\d:\d\d:\d\d: Connection (reset by peer|r\w*…|…|\w*…); try in 4 s; sweep goes on", alert.said(AT_80)
    )
    trying = replace(link, next_try=None, detail="auth …")
    again = link_alert(RunState(), trying, "ct200", NOW)
    assert again is not None
    assert re.search(r"\d, trying: auth …; sweep goes on$", again.said(AT_80))


def test_a_refusal_says_why_before_all_else_and_what_to_do_where_there_is_room() -> None:
    detail = "ct200: auth: E105 /home/op/.ssh/id_ed25519 needs its passphrase, and nobody is here → ssh-add"
    link = replace(LINK, phase=LinkPhase.DOWN, detail=detail)
    alert = link_alert(RunState(), link, "ct200", NOW)
    assert alert is not None
    assert alert.said(AT_80) == "auth: /home/op/.ssh/id_ed25519 needs its passph…; sweep goes on"
    assert alert.said(200).endswith("nobody is here → ssh-add; sweep goes on")
    silent = link_alert(RunState(), replace(LINK, phase=LinkPhase.DOWN), "ct200", NOW)
    assert silent is not None
    assert silent.said(AT_80) == "no answer from ct200; sweep goes on"


def test_a_copy_of_a_lost_host_says_why_and_how_old_it_is_also_where_the_run_has_ended() -> None:
    link = LinkState(LinkPhase.OFFLINE, NOW, "long", heard=NOW - 7300, lost="ct200: connect: Connection refused → x")
    ended = apply(RunState(), Entry(1, 1, NOW, RunEnded("complete")))
    for state in (RunState(), ended):
        alert = link_alert(state, link, "ct200", NOW)
        assert alert is not None
        assert alert.said(78) == "ct200 lost: connect: Connection refused; the copy here is 2 h old"
    assert link_alert(ended, replace(link, lost=""), "ct200", NOW) is None


def test_a_first_try_says_nothing_behind_a_colon_while_nothing_is_known() -> None:
    alert = link_alert(RunState(), replace(LINK, phase=LinkPhase.CONNECTING, heard=None), "ct200", NOW)
    assert alert is not None
    assert alert.said(AT_80) == "connecting to ct200"


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
            assert any("agent stalled " in line and "ctrl+r" in line for line in lines[1:4])
