"""A sweep as another user over a real sshd, with a real engine; the console leaves in the middle and comes back."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from served_user import CopiedEngine, copied_engine
from sshd import Sshd, prepared
from sweeps import cells, deployment, submission

from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.sweep import Speculative
from ddconsole.core.wire import Submission
from ddconsole.link.client import LinkPhase
from ddconsole.link.connect import connect
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror
from ddconsole.link.offline_feed import OfflineRunFeed

pytestmark = [pytest.mark.ssh, pytest.mark.engine]


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with prepared() as server:
        server.start()
        yield server


@pytest.fixture(scope="module")
def engine() -> Iterator[CopiedEngine]:
    with copied_engine() as one:
        yield one


def order_for(engine: CopiedEngine) -> Submission:
    drafting = replace(deployment("d02", "ngram"), speculative=Speculative(kind="ngram", draft_tokens=4))
    all_cells = cells("d01", 3, max_tokens=600) + cells("d02", 2, 4, max_tokens=600)
    plan = [replace(one, env=engine.environment) for one in (deployment("d01"), drafting)]
    order = submission(plan, all_cells, run="remote-run")
    engine_part = {**order.engine, "command": list(engine.command), "env": engine.environment}
    return replace(order, engine=engine_part, model={"path": engine.model, "draft": None, "source": None})


@asynccontextmanager
async def console(sshd: Sshd, state: str) -> AsyncIterator[HttpAgentClient]:
    host = f"{sshd.user.pw_name}@127.0.0.1:{sshd.port}"
    client = await connect(host, state_directory=state, ssh=sshd.settings())
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.timeout(240)
async def test_a_sweep_over_ssh_goes_on_while_nobody_is_attached(
    sshd: Sshd, engine: CopiedEngine, tmp_path: Path
) -> None:
    state = f"{sshd.user.pw_dir}/state-sweep"
    shutil.rmtree(state, ignore_errors=True)
    async with console(sshd, state) as client:
        await client.submit(order_for(engine))
        feed = LiveRunFeed(client, "remote-run")
        feed.start()
        await until(lambda: any(row.attempts for row in feed.state.cells.values()))
        seen = feed.state.seq
        await feed.close()
    await until(lambda: sshd.sessions() == [])
    async with console(sshd, state) as client:
        feed = LiveRunFeed(client, "remote-run")
        mirror = Mirror(client, "remote-run", tmp_path / "remote-run")
        mirror.start()
        feed.start()
        await until(lambda: feed.link.phase is LinkPhase.UP and feed.state.seq > seen)
        sshd.kill_sessions()
        await until(lambda: feed.link.phase is not LinkPhase.UP)
        await until(lambda: feed.state.phase is st.RunPhase.ENDED and feed.state.live_launch() is None)
        assert {row.state.phase for row in feed.state.cells.values()} == {st.CellPhase.DONE}
        await until(lambda: mirror.seq >= feed.state.seq)
        await mirror.copy_files()
        assert mirror.problems == []
        await mirror.close()
        await feed.close()
        await client.quit()
    entries, damage = read_lines((tmp_path / "remote-run" / "journal.jsonl").read_bytes())
    assert damage is None
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    mirrored = fold(entries)
    assert mirrored.outcome == "complete"
    for name in mirrored.cells:
        raw = (tmp_path / "remote-run" / "cells" / name / "1.json").read_bytes()
        assert [one.output_tokens for one in attempt_from_json(json.loads(raw)).requests] == [600, 600]
    assert not list((tmp_path / "remote-run").rglob("*.part"))
    for number in mirrored.launches:
        assert b"main loop exited" in (tmp_path / "remote-run" / "launches" / str(number) / "server.log").read_bytes()
    offline = OfflineRunFeed(tmp_path / "remote-run")
    assert offline.state.counts() == {st.CellPhase.DONE: 5}
    assert offline.host_state is not None
    await offline.close()


async def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline
        await asyncio.sleep(0.05)
