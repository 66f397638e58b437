"""Beginning a run: what can be refused at once, and what is said where the link is lost meanwhile."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from sweeps import cells, deployment, submission

from ddconsole import cli
from ddconsole.commands.connection import UsageProblem, fail
from ddconsole.commands.host_choices import HostChoice
from ddconsole.commands.run import Begun, send
from ddconsole.core.plan_values import ID_RULE
from ddconsole.link.client import LinkLost
from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient


def test_a_run_that_cannot_be_called_so_is_refused_before_the_host_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    arguments = ["run", "ct200-ddtree", "--host", "no-such-host.invalid", "--headless", "--name"]
    assert cli.main([*arguments, "Night run"]) == 2
    said = capsys.readouterr().err
    assert said == f'ddconsole: run id: "Night run" is not a name; allowed: {ID_RULE}\n'


def test_a_verb_whose_link_is_lost_promises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(LinkLost("ct200: the link was lost: reset", "it is asked again when the link is back")) == 2
    said = capsys.readouterr().err
    assert said.startswith("ddconsole: ct200: the link was lost: reset → what was asked may or may not have been done;")
    assert "asked again" not in said


async def test_a_link_lost_while_the_run_is_sent_says_how_to_find_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    socket = tmp_path_factory.mktemp("s") / "a"

    async def take_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket)))

    order = submission([deployment("d01")], cells("d01", 1), run="night")
    client = HttpAgentClient(session, "ct200")
    async with await asyncio.start_unix_server(take_and_go, socket):
        with pytest.raises(
            UsageProblem, match="whether run night has begun is not known: ddconsole attach night --host"
        ):
            await send(client, Begun(order, "ct200", HostChoice(), None))
        await client.close()
