"""The header: what stays when it gets narrow."""

from ddconsole.core import events as ev
from ddconsole.link.client import LinkPhase, LinkState
from screens.widgets.status_header import HeaderFacts, header_line
from tests.screens import ct200
from tests.screens.fake_feed import FakeFeed


def header(feed: FakeFeed, width: int) -> str:
    link = LinkState(LinkPhase.UP, since=0.0, heard=100.0, round_trip=0.012)
    facts = HeaderFacts("demo", "ct200", feed.state, link, feed.clock, 100.0, left=5400.0, simulated=True)
    return "".join(text for text, _ in header_line(facts, width))


def test_trouble_and_debts_outlive_the_time_left() -> None:
    feed = ct200.midway()
    feed.emit(ev.DebtTaken("unit", "ddtree-gpu0.service"))
    wide = header(feed, 200)
    assert all(word in wide for word in ("failed", "blocked", "left", "debt: ddtree-gpu0.service", "SIMULATED"))
    widths = {word: min(width for width in range(40, 200) if word in header(feed, width)) for word in wide.split()}
    assert widths["failed"] < widths["left"]
    assert widths["blocked"] < widths["left"]
    assert widths["debt:"] < widths["left"]
    assert "SIMULATED" in header(feed, 40)


def test_what_the_journal_cannot_take_is_said_at_80_columns() -> None:
    feed = ct200.midway()
    link = LinkState(
        LinkPhase.UP, since=0.0, heard=100.0, round_trip=0.012, trouble="demo: STORAGE FAILED: a sync of /x"
    )
    facts = HeaderFacts("demo", "ct200", feed.state, link, feed.clock, 100.0, left=5400.0, simulated=False)
    assert "! demo: STORAGE FAILED" in "".join(text for text, _ in header_line(facts, 80))[:80]


def test_a_unit_that_could_not_be_put_back_stands_before_other_debts() -> None:
    feed = ct200.midway()
    taken = [ev.DebtTaken(name, name) for name in ("first.service", "second.service")]
    feed.emit(*taken, ev.DebtKept("second.service", "it ended 5 s after its start"))
    assert f"not put back: second.service +{len(feed.state.debts) - 1}" in header(feed, 200)
