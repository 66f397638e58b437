"""Sweeps from submission to end, with real runner, load and server processes."""

import asyncio
import json

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.service import Busy, Service
from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command


def outcomes(state: RunState) -> dict[str, st.CellPhase]:
    return {name: row.state.phase for name, row in state.cells.items()}


def tell(service: Service, name: str, *names: str, **changes: str | None) -> str:
    answer = service.command(directory(service), Command(f"{name}-{names}-{changes}", name, "test", names, changes))
    assert answer.taken, answer.text
    return answer.text


async def test_a_sweep_of_two_deployments_ends_done_with_its_files(service: Service) -> None:
    order = submission(
        [deployment("d01"), deployment("d02", "other", pace=0.002)], cells("d01", 2) + cells("d02", 1, 3)
    )
    service.submit(order)
    state = await until(service, "test-run", ended)
    assert outcomes(state) == dict.fromkeys(("c001", "c002", "c003"), st.CellPhase.DONE), phases(state)
    assert len(state.launches) == 2
    assert state.outcome == "complete"
    run = directory(service)
    for name in state.cells:
        attempt = attempt_from_json(json.loads(run.attempt(name, 1).read_bytes()))
        assert [one.output_tokens for one in attempt.requests] == [24, 24]
        assert attempt.figures["succeeded"] == 2
        assert attempt.counters["after"]["output_tokens"] - attempt.counters["before"]["output_tokens"] == 48
        figures = state.cells[name].attempts[0].figures
        assert figures["acceptance"]["tokens"] == figures["acceptance"]["steps"] == 48
    assert survivors(run, state) == []


async def test_a_second_submission_waits_for_the_first(service: Service) -> None:
    service.submit(submission([deployment("d01", load_seconds=2.0)], cells("d01", 1)))
    with pytest.raises(Busy, match="test-run"):
        service.submit(submission([deployment("d01")], cells("d01", 1), run="other-run"))


async def test_stop_skip_retry_and_pause_have_exactly_their_effect(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=0.05)], cells("d01", 4)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    tell(service, "skip", "c003")
    tell(service, "stop", "c001")
    tell(service, "pause")
    paused = await until(service, "test-run", lambda state: state.running_cell() is None)
    assert outcomes(paused) == {
        "c001": st.CellPhase.STOPPED,
        "c002": st.CellPhase.PENDING,
        "c003": st.CellPhase.SKIPPED,
        "c004": st.CellPhase.PENDING,
    }
    live = paused.live_launch()
    assert live is not None
    assert live.state.phase is st.LaunchPhase.READY
    tell(service, "retry", "c001")
    tell(service, "resume")
    state = await until(service, "test-run", ended)
    assert outcomes(state)["c001"] is st.CellPhase.DONE
    assert [one.outcome for one in state.cells["c001"].attempts] == [st.CellPhase.STOPPED, st.CellPhase.DONE]
    assert outcomes(state)["c003"] is st.CellPhase.SKIPPED
    assert len(state.launches) == 1


async def test_start_now_stops_what_runs_and_comes_next(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=0.05)], cells("d01", 3)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    tell(service, "start-now", "c003")
    await until(service, "test-run", lambda state: state.cells["c003"].attempts != ())
    state = await until(service, "test-run", ended)
    assert outcomes(state)["c001"] is st.CellPhase.STOPPED
    started = {name: row.attempts[0].started for name, row in state.cells.items()}
    assert started["c003"] < started["c002"]


async def test_an_edited_length_is_what_is_measured(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=0.02)], cells("d01", 2)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    tell(service, "edit", "c002", max_tokens="20")
    state = await until(service, "test-run", ended)
    attempt = attempt_from_json(json.loads(directory(service).attempt("c002", 1).read_bytes()))
    assert [one.output_tokens for one in attempt.requests] == [20, 20]
    assert len(state.launches) == 1


async def test_an_edited_server_flag_makes_a_launch_of_its_own(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=0.02)], cells("d01", 2)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    tell(service, "edit", "c002", **{"flag:threads": "2"})
    state = await until(service, "test-run", ended)
    assert state.cells["c002"].cell.deployment == "d02"
    assert outcomes(state)["c002"] is st.CellPhase.DONE
    assert len(state.launches) == 2
    cmdline = json.loads((directory(service).launch(2).order).read_bytes())["deployment"]["args"]
    assert str(cmdline["threads"]) == "2"


@pytest.mark.parametrize(
    ("flags", "phase", "cause"),
    [
        ({"die_loading": True}, st.CellPhase.BLOCKED, None),
        ({"no_such_flag": True}, st.CellPhase.BLOCKED, "ENGINE-ARGUMENT"),
        ({"die_after": 5}, st.CellPhase.FAILED, None),
        ({"error_in_stream": True}, st.CellPhase.FAILED, "REQUEST"),
        ({"no_tokens": True}, st.CellPhase.FAILED, "REQUEST"),
        ({"hang_after": 5}, st.CellPhase.FAILED, "STALL"),
    ],
)
async def test_one_failure_does_not_end_the_sweep(
    service: Service, flags: dict[str, object], phase: st.CellPhase, cause: str | None
) -> None:
    bad = cells("d01", 1, stall_timeout=1.0)
    order = submission(
        [deployment("d01", "bad", **flags), deployment("d02", "good")], bad + cells("d02", 1, 2), retries=0
    )
    service.submit(order)
    state = await until(service, "test-run", ended)
    assert outcomes(state) == {"c001": phase, "c002": st.CellPhase.DONE}, phases(state)
    row = state.cells["c001"].state
    assert isinstance(row, st.Failed | st.Blocked)
    assert row.cause.text
    if cause is not None:
        assert row.cause.id == cause
    if phase is st.CellPhase.FAILED:
        kept = attempt_from_json(json.loads(directory(service).attempt("c001", 1).read_bytes()))
        assert kept.outcome == "failed"
        assert kept.requests
        assert state.cells["c001"].done_attempts() == ()
    assert survivors(directory(service), state) == []


async def test_a_server_that_hangs_while_it_loads_is_ended(service: Service) -> None:
    order = submission([deployment("d01", hang_loading=True)], cells("d01", 1), ready_timeout=2.0, retries=0)
    service.submit(order)
    state = await until(service, "test-run", ended)
    row = state.cells["c001"].state
    assert isinstance(row, st.Blocked)
    assert row.cause.id == "READY-TIMEOUT"
    assert survivors(directory(service), state) == []


@pytest.mark.parametrize("on_term", ["drain", "ignore"])
async def test_a_server_that_does_not_leave_is_killed_with_its_workers(service: Service, on_term: str) -> None:
    service.submit(submission([deployment("d01", on_term=on_term, workers=3)], cells("d01", 1)))
    state = await until(service, "test-run", ended)
    assert outcomes(state) == {"c001": st.CellPhase.DONE}
    assert survivors(directory(service), state) == []


async def test_a_taken_port_is_refused_and_nothing_is_sent(service: Service) -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))
        writer.close()

    stranger = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    service.submit(submission([deployment("d01")], cells("d01", 1), port=port, retries=0))
    state = await until(service, "test-run", ended)
    stranger.close()
    row = state.cells["c001"].state
    assert isinstance(row, st.Blocked)
    assert row.cause.id == "PORT-TAKEN"
    assert f"port {port} is taken by pid" in row.cause.text
    assert seen == []
