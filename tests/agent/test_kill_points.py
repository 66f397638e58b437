"""Kill -9 at every write of the journal, and at every write of a runner: before it, torn, before and after its sync."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from failing_disk import WHERE, Rule, counted, environment, fired
from mortal_agent import MortalAgent, OwnProcess
from nothing_lost import assert_nothing_lost
from sweeps import cells, deployment, ended, submission, until

from ddconsole.agent import launcher
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.clock import SystemClock
from ddconsole.core.own_process import own_process
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Submission
from ddconsole.runner.run_directory import RunDirectory

pytestmark = pytest.mark.engine

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "tinypy.gguf"
JOURNAL_WRITES = 14
"""Of an undisturbed run of `one_launch`, at least: it depends on how soon the runner is gone."""
RUNNER_EVENTS = 9
"""Of an undisturbed `one_launch`, at least."""


def short_sweep() -> Submission:
    """Two servers that start at once, three cells of two short requests."""
    plan = [deployment("d01", load_seconds=0.05, workers=1), deployment("d02", "other", load_seconds=0.05, workers=1)]
    return submission(plan, cells("d01", 2, max_tokens=18) + cells("d02", 1, 3, max_tokens=18), canary=False)


def one_launch() -> Submission:
    """One server, two cells: the cheapest sweep with every kind of event."""
    return submission([deployment("d01", load_seconds=0.05, workers=1)], cells("d01", 2, max_tokens=18), canary=False)


def real_sweep() -> Submission:
    """llama.cpp with a tiny model."""
    order = submission([deployment("d01")], cells("d01", 2, max_tokens=24))
    command = [sys.executable, "-m", "ddconsole.engines.xllamacpp_server"]
    return replace(
        order,
        engine={**order.engine, "command": command},
        model={"path": str(MODEL), "draft": None, "source": None},
    )


async def survive(
    folder: Path,
    order: Submission,
    rule: Rule,
    *,
    repeated: int = 1,
    rests_until: Callable[[], object] = lambda: True,
) -> MortalAgent:
    """A sweep with an agent that the rule kills; what a console was sent is in the journal, byte for byte."""
    Path(rule.folder).mkdir()
    agent = MortalAgent(folder, OwnProcess(environment(rule)))
    agent.rests_until = rests_until
    try:
        run = await agent.sweep(order, 90)
        assert_nothing_lost(run, repeated=repeated)
        assert run.journal.read_bytes() == b"".join(agent.sent)
        assert agent.starts == 1 + len(fired(rule))
    finally:
        await agent.end()
    assert agent.processes() == []
    return agent


def journal_rule(folder: Path, where: str, number: int) -> Rule:
    return Rule(str(folder / "rule"), "journal.jsonl", where, number)


CI_POINTS = [("torn", 2), ("before", 3), ("written", 3), ("synced", 8), ("written", 9), ("torn", 14)]


@pytest.mark.parametrize(("where", "number"), CI_POINTS)
async def test_an_agent_killed_at_a_write_of_the_journal(where: str, number: int, tmp_path: Path) -> None:
    rule = journal_rule(tmp_path, where, number)
    await survive(tmp_path, one_launch(), rule)
    assert fired(rule) == [where]


async def test_an_agent_killed_at_every_third_write(tmp_path: Path) -> None:
    rule = replace(journal_rule(tmp_path, "", 0), modes=WHERE, stride=3)
    agent = await survive(tmp_path, short_sweep(), rule, repeated=2)
    assert agent.starts > 6
    assert set(fired(rule)) == set(WHERE)


async def test_an_agent_killed_before_it_has_noted_the_runner_that_it_started(tmp_path: Path) -> None:
    """Its runner, which measures by then, is found by its own note: never are there two for one cell."""
    rule = Rule(str(tmp_path / "rule"), "runner.json", "rename", 1)
    run = RunDirectory(tmp_path / "runs" / "test-run")

    def begun() -> int:
        return b"".join(one.read_bytes() for one in run.path.glob("launches/*/events.jsonl")).count(b"AttemptStarted")

    slow = submission([deployment("d01", load_seconds=0.05, pace=0.05)], cells("d01", 2, max_tokens=100), canary=False)
    await survive(tmp_path, slow, rule, rests_until=begun)
    assert fired(rule) == ["rename"]
    assert begun() == run.journal.read_bytes().count(b"AttemptStarted") == 2
    assert [path.name for path in run.path.glob("launches/*")] == ["1"]


@pytest.mark.trial
@pytest.mark.parametrize("file", ["launch.json", "control.json", "runner.json", "submission.json", "status.json"])
@pytest.mark.parametrize("where", ["before", "torn", "written", "rename", "renamed"])
async def test_every_other_file_of_the_agent(where: str, file: str, tmp_path: Path) -> None:
    rule = Rule(str(tmp_path / "rule"), file, where, 1)
    await survive(tmp_path, one_launch(), rule)
    assert fired(rule) == [where]


@pytest.mark.trial
@pytest.mark.parametrize("number", range(1, JOURNAL_WRITES + 4))
@pytest.mark.parametrize("where", WHERE)
async def test_every_write_of_the_journal(where: str, number: int, tmp_path: Path) -> None:
    rule = journal_rule(tmp_path, where, number)
    await survive(tmp_path, one_launch(), rule)
    assert fired(rule) == [where] if number <= JOURNAL_WRITES else counted(rule) >= JOURNAL_WRITES


@pytest.mark.trial
@pytest.mark.parametrize("number", range(1, JOURNAL_WRITES + 4))
async def test_every_write_of_the_journal_with_a_real_engine(number: int, tmp_path: Path) -> None:
    rule = journal_rule(tmp_path, WHERE[number % 4], number)
    await survive(tmp_path, real_sweep(), rule)
    assert fired(rule) == [rule.where] if number <= JOURNAL_WRITES else counted(rule) >= JOURNAL_WRITES


# --- the runner


async def survive_runner(
    folder: Path, order: Submission, rule: Rule, monkeypatch: pytest.MonkeyPatch, *, repeated: int = 1
) -> RunState:
    """A sweep whose runners run on the failing disk."""
    Path(rule.folder).mkdir()

    def mortal(module: str, *arguments: str) -> tuple[str, ...]:
        return own_process("failing_disk", module, *arguments)

    monkeypatch.setattr(launcher, "own_process", mortal)
    for name, value in environment(rule).items():
        monkeypatch.setenv(name, value)
    service = Service(folder / "runs", SystemClock())
    await service.start()
    try:
        service.submit(order)
        await until(service, order.run, lambda state: ended(state) or state.phase is st.RunPhase.PAUSED, 90)
        return assert_nothing_lost(RunDirectory(folder / "runs" / order.run), repeated=repeated)
    finally:
        await service.stop()


def runner_rule(folder: Path, file: str, where: str, number: int) -> Rule:
    return Rule(str(folder / "rule"), file, where, number)


CI_RUNNER = [
    ("1.json", "rename", 1),
    ("1.json", "renamed", 1),
    ("1.json", "torn", 2),
    ("events.jsonl", "torn", 4),
    ("events.jsonl", "written", 5),
]


@pytest.mark.parametrize(("file", "where", "number"), CI_RUNNER)
async def test_a_runner_killed_at_a_write(
    file: str, where: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = runner_rule(tmp_path, file, where, number)
    await survive_runner(tmp_path, one_launch(), rule, monkeypatch)
    assert fired(rule) == [where]


@pytest.mark.trial
@pytest.mark.parametrize("number", range(1, RUNNER_EVENTS + 4))
@pytest.mark.parametrize("where", WHERE)
async def test_every_event_of_a_runner(
    where: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = runner_rule(tmp_path, "events.jsonl", where, number)
    await survive_runner(tmp_path, one_launch(), rule, monkeypatch)
    assert fired(rule) == [where] if number <= RUNNER_EVENTS else counted(rule) >= RUNNER_EVENTS


RESULT_POINTS: Sequence[tuple[str, int]] = [
    (where, number) for where in (*WHERE, "rename", "renamed") for number in (1, 2)
]


@pytest.mark.trial
@pytest.mark.parametrize(("where", "number"), RESULT_POINTS)
async def test_every_result(where: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = runner_rule(tmp_path, "1.json", where, number)
    state = await survive_runner(tmp_path, one_launch(), rule, monkeypatch)
    assert fired(rule) == [where]
    done = [one for row in state.cells.values() for one in row.done_attempts()]
    adopted = [one for one in done if any("adopted" in flag for flag in one.flags)]
    assert len(adopted) == (where == "renamed")
