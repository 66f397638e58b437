from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.command_cost import cost, launch_cost, start_in_words
from tests.screens import ct200


def test_start_on_the_running_server_costs_nothing() -> None:
    state = ct200.midway().state
    assert cost(state, st.CellCommand.START, ["c030"]) == []


def test_start_of_another_deployment_names_both_servers_and_what_their_starts_took() -> None:
    state = ct200.midway().state
    lines = cost(state, st.CellCommand.START, ["c037"])
    assert lines[0] == "the server of ddtree-b15 TP1 (launch 5) is stopped first"
    assert lines[1] == "ddtree-b15 TP1 has 7 cells left: one more start later, a start of it took 95 s"
    assert lines[2] == "ddtree-b16 TP1 is started: starts at TP1 took 95 s"


def test_start_now_says_what_is_lost() -> None:
    feed = ct200.midway()
    lines = cost(feed.state, st.CellCommand.START_NOW, ["c030"], feed.now())
    assert lines == ["c029 has been measured for 31 s: that is lost (its records are kept, and count for nothing)"]


def test_stop_says_what_is_lost_and_that_the_server_stays() -> None:
    feed = ct200.midway()
    lines = cost(feed.state, st.CellCommand.STOP, ["c029"], feed.now() + 60)
    assert "91 s" in lines[0]
    assert lines[-1] == "the server stays up and takes its next cell"


def test_retry_joins_the_live_server_or_a_launch_to_come_or_costs_one() -> None:
    state = ct200.midway().state
    assert cost(state, st.CellCommand.RETRY, ["c028"]) == [
        "c028 is done: it is measured once more, and both attempts count"
    ]
    assert cost(state, st.CellCommand.RETRY, ["c023"]) == [
        "one more server start, of ddtree-b8 TP1: a start of it took 95 s"
    ]
    assert launch_cost(state, state.deployments["d05"]) == []


def test_retry_of_an_ended_run_says_that_it_goes_on() -> None:
    feed = ct200.midway()
    feed.emit(ev.RunEnded("complete"))
    assert "the run has ended: it goes on with this" in cost(feed.state, st.CellCommand.RETRY, ["c023"])


def test_skipping_the_baseline_says_what_goes_with_it() -> None:
    feed = ct200.feed()
    lines = cost(feed.state, st.CellCommand.SKIP, ["c001"])
    assert any("baseline" in line and "speed-up" in line for line in lines)


def test_a_start_that_nobody_has_measured_is_not_invented() -> None:
    feed = ct200.feed()
    assert start_in_words(feed.state, feed.state.deployments["d01"]) == "how long its start takes is not known yet"


def test_the_three_ways_to_end_a_sweep() -> None:
    feed = ct200.midway()
    pause = cost(feed.state, st.RunCommand.PAUSE)
    assert pause == [
        "c029 is finished first",
        "the server of launch 5 stays up and holds GPU 7",
        "ddtree-gpu0.service stays stopped",
    ]
    drain = cost(feed.state, st.RunCommand.DRAIN)
    assert drain[0] == "ddtree-b15 TP1 (launch 5) still measures 7 cells"
    stop = cost(feed.state, st.RunCommand.STOP, now=feed.now())
    assert "31 s" in stop[0]
    assert stop[-1] == "put back: ddtree-gpu0.service"


def test_nothing_runs_nothing_is_lost() -> None:
    feed = ct200.feed()
    assert cost(feed.state, st.RunCommand.PAUSE) == []
    assert cost(feed.state, st.RunCommand.STOP) == ["162 cells stay pending"]
    assert cost(feed.state, st.CellCommand.START, ["gone"]) == []
