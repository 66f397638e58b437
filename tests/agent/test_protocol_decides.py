"""Protocols that decide while a real server is measured: pruning, and repeating until a cell is sure enough."""

import pytest
from sweeps import cells, deployment, directory, ended, submission, until

from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.repeating import half_width
from ddconsole.core.wire import Command


@pytest.mark.engine
async def test_a_slow_method_stops_after_its_first_cell_and_comes_back_by_retry(service: Service) -> None:
    deployments = [
        deployment("d01", pace=0.1),
        deployment("d02", "slow", pace=0.06),
        deployment("d03", "fast", pace=0.005),
    ]
    sweep = cells("d01", 2) + cells("d02", 3, 3) + cells("d03", 2, 6)
    service.submit(submission(deployments, sweep, prune={"below": 0.8}))
    state = await until(service, "test-run", ended, 120.0)
    assert [launch.deployment for launch in state.launches.values()] == ["d01", "d02", "d03"]
    phases = {name: row.state.phase.value for name, row in state.cells.items()}
    pruned = [name for name, phase in phases.items() if phase == "pruned"]
    assert pruned == ["c004", "c005"]
    assert set(phases.values()) == {"done", "pruned"}
    because = state.cells["c004"].state
    assert isinstance(because, st.Pruned)
    assert because.because.startswith("its canary c003 gave ")
    assert "of fast's" in because.because
    retry = Command("r", "retry", "test", cells=("c004",))
    assert service.command(directory(service), retry).taken
    state = await until(service, "test-run", lambda state: state.cells["c004"].state.phase is st.CellPhase.DONE, 60.0)
    assert state.cells["c005"].state.phase is st.CellPhase.PRUNED


@pytest.mark.engine
async def test_one_launch_becomes_three_where_an_interval_is_asked_for(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=0.02)], cells("d01", 1), repeat={"until": 1.0, "most": 4}))
    state = await until(service, "test-run", ended, 120.0)
    row = state.cells["c001"]
    rates = [float(attempt.figures["output_rate"]) for attempt in row.done_attempts()]
    width = half_width(rates)
    assert width is not None
    assert len(rates) == 4 or width <= 1.0
    assert len({attempt.launch for attempt in row.done_attempts()}) == len(rates) == len(state.launches)
    assert row.state.phase is st.CellPhase.DONE
