"""Verbs on a run of another host: the host is asked, and the copy here is shown where it cannot tell."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from fake_agent import RUN, FakeAgent

from ddconsole import cli
from ddconsole.commands import connection
from ddconsole.core.events import CellsRetried, CellsSkipped, Event, RunEnded, RunResumed
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient

Verb = Callable[..., "asyncio.Future[int]"]


@pytest.fixture
def agent() -> FakeAgent:
    """A host on which the run goes on to its end."""
    return FakeAgent()


@pytest.fixture
async def runs(
    agent: FakeAgent, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """Where copies lie; `fake` is the host that the agent answers for."""
    socket = tmp_path_factory.mktemp("s") / "a"

    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket)))

    async def connect(host: str, **_: object) -> HttpAgentClient:
        return HttpAgentClient(session, host, silence=2.0, answer_time=5.0)

    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with agent.listening(socket):
        yield tmp_path


def copied(agent: FakeAgent, runs: Path, *later: Event, run: str = RUN) -> Path:
    """A copy of the run as it is now; `later` happens on the host alone."""
    folder = runs / run
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes(b"".join(agent.lines))
    (folder / "mirror.json").write_text('{"heard": 1790000000.0}')
    agent.append(*later)
    return folder


async def verb(*arguments: str) -> int:
    return await asyncio.to_thread(cli.main, arguments)


async def test_a_run_that_was_taken_up_again_is_opened_as_its_host_knows_it(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.append(CellsSkipped(("c001", "c002"), "me", "not now"), RunEnded("complete"))
    folder = copied(agent, runs, CellsRetried(("c001",), "me"), RunResumed("me"), RunEnded("stopped"))
    await verb("attach", RUN, "--headless")
    assert "run ended: stopped" in capsys.readouterr().out
    entries, _ = read_lines((folder / "journal.jsonl").read_bytes())
    assert fold(entries).outcome == "stopped"


async def test_a_run_that_its_host_has_no_more_is_shown_by_the_copy(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.append(RunEnded("complete"))
    copied(agent, runs, run="cleared")
    assert await verb("attach", "cleared", "--headless") == 0
    told = capsys.readouterr()
    assert "fake lost; the copy here is" in told.err
    assert "run ended: complete" in told.out


async def test_cells_and_debts_of_a_host_are_asked_of_it_and_need_no_copy(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(agent, runs, CellsSkipped(("c002",), "me", "not now"))
    assert await verb("cells", RUN) == 0
    assert "◌  pending  c002" in capsys.readouterr().out
    assert await verb("cells", RUN, "--host", "fake") == 0
    table = capsys.readouterr().out
    assert table.startswith("r  running\n")
    assert "–  skipped  c002" in table
    assert await verb("debts", "--host", "fake") == 0
    assert capsys.readouterr().out == "this run owes nothing\n"
    assert await verb("cells", "other", "--host", "fake") == 2
    assert "fake has no run other; there are: r" in capsys.readouterr().err


async def test_cells_are_named_as_they_are_on_the_host(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await verb("skip", RUN, "ar *", "--host", "fake") == 0
    assert [one["cells"] for one in agent.commands] == [["c001", "c002"]]
    capsys.readouterr()
    assert await verb("skip", RUN, "c099", "--host", "fake") == 2
    assert "no cell is called 'c099'" in capsys.readouterr().err


async def test_an_export_of_a_host_brings_what_is_missing_first(agent: FakeAgent, runs: Path, tmp_path: Path) -> None:
    agent.files["plan.yaml"] = b"name: x\n"
    copied(agent, runs, CellsSkipped(("c001", "c002"), "me", "not now"), RunEnded("complete"))
    await verb("export", RUN, "--to", str(tmp_path / "out"), "--host", "fake")
    entries, _ = read_lines((runs / RUN / "journal.jsonl").read_bytes())
    assert fold(entries).outcome == "complete"
    assert (runs / RUN / "plan.yaml").read_bytes() == b"name: x\n"


@pytest.mark.parametrize("time", ["07:00", "none"])
async def test_a_deadline_is_set_from_the_command_line(
    time: str, agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await verb("until", time, RUN, "--host", "fake") == 0
    (command,) = agent.commands
    assert (command["name"], command["changes"], command["cells"]) == ("until", {"until": time}, [])
    assert capsys.readouterr().out == "taken\n"


async def test_a_refusal_as_json_names_nobody_who_is_not_there(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await verb("pause", RUN, "--host", "fake", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"taken": True, "text": "taken", "cells": [], "epoch": 0}


async def test_a_name_that_is_taken_is_refused_before_the_checks(
    agent: FakeAgent, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.active = None
    assert await verb("run", "ct200-ddtree", "--host", "fake", "--headless", "--name", RUN) == 2
    assert f"there is a run {RUN} on fake already: give it another --name" in capsys.readouterr().err
    agent.active = RUN
    assert await verb("run", "ct200-ddtree", "--host", "fake", "--headless") == 2
    assert f"run {RUN} is active on fake; ddconsole attach {RUN} --host fake, or stop-run it" in capsys.readouterr().err
