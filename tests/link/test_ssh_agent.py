"""Over a real sshd: the agent's arrival, the way to its socket, and every way to lose it."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
from fake_agent import RUN
from remote_agent import Remote
from sshd import USER, prepared, until_gone
from waiting import until

from ddconsole.link.bundle import BundleExtras
from ddconsole.link.client import LinkLost, LinkPhase
from ddconsole.link.deploy import HostDeployment
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.ssh_host import HostConnection, connect_ssh
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh


async def test_the_real_agent_runs_from_what_was_brought(remote: Remote) -> None:
    client = remote.client(remote.agent(module="ddconsole.agent", extras=BundleExtras()))
    hello = await client.hello()
    assert (hello.run, await client.runs()) == (None, [])
    assert psutil.Process(hello.pid).uids().real == remote.sshd.user.pw_uid
    await client.quit()
    await client.close()
    assert await until_gone(hello.pid)


async def test_an_agent_is_brought_started_and_found_again(remote: Remote) -> None:
    client = remote.client(remote.agent(environment={"DDCONSOLE_CLOCK": "2@1.0"}))
    hello = await client.hello()
    assert remote.stages == [
        Stage.CONNECT,
        Stage.HOST_KEY,
        Stage.AUTH,
        Stage.PYTHON,
        Stage.HANDSHAKE,
        Stage.UPLOAD,
        Stage.START,
        Stage.HANDSHAKE,
    ]
    await client.close()
    assert [one for one in remote.agents() if one == hello.pid]
    assert psutil.Process(hello.pid).uids().real == remote.sshd.user.pw_uid
    assert psutil.Process(hello.pid).environ()["DDCONSOLE_CLOCK"] == "2@1.0"
    assert os.getsid(hello.pid) == hello.pid
    folder = Path(remote.state) / "agent"
    assert [len(one.name) for one in folder.iterdir()] == [16]

    remote.stages.clear()
    again = remote.client()
    assert (await again.hello()).pid == hello.pid
    assert remote.stages == [Stage.CONNECT, Stage.HOST_KEY, Stage.AUTH, Stage.PYTHON, Stage.HANDSHAKE]
    assert len(await again.runs()) == 1
    await again.close()


async def test_the_journal_and_the_live_stream_come_through_channels(remote: Remote) -> None:
    route = remote.route()
    client = HttpAgentClient(route.open, "box", on_close=route.close)
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 40)
    assert not route.bridged
    assert [one.text for one in feed.state.warnings] == [f"tick {5 + n}" for n in range(len(feed.state.warnings))]
    await feed.close()
    await client.close()


async def test_where_forwarding_is_forbidden_a_bridge_carries_the_bytes(cache: Path) -> None:
    with prepared(forwarding=False) as sshd:
        sshd.start()
        remote = Remote(sshd, cache)
        route = remote.route()
        client = HttpAgentClient(route.open, "box", on_close=route.close)
        feed = LiveRunFeed(client, RUN)
        feed.start()
        await until(lambda: feed.state.seq > 20)
        assert route.bridged
        assert (await feed.command("stop", ["c001"], because="x" * 300_000)).taken
        assert next(one.text for one in feed.state.warnings) == "tick 5"
        await feed.close()
        await client.close()
        await remote.clear()


async def test_a_session_killed_in_mid_stream_is_seen_and_replayed_without_a_gap(breakable: Remote) -> None:
    client = breakable.client()
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 20)
    pid = breakable.agents()
    phases: list[LinkPhase] = []
    feed.subscribe(lambda _: phases.append(feed.link.phase))
    known = feed.state.seq
    assert breakable.sshd.kill_sessions()
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
    assert feed.link.heard is not None
    assert feed.link.heard <= feed.link.since
    feed.retry_now()
    await until(lambda: feed.link.phase is LinkPhase.UP and feed.state.seq > known + 20)
    assert LinkPhase.RECONNECTING in phases
    texts = [one.text for one in feed.state.warnings]
    assert texts == [f"tick {int(texts[0].split()[1]) + n}" for n in range(len(texts))]
    assert breakable.agents() == pid
    await feed.close()
    await client.close()


async def test_a_restarted_sshd_is_waited_for_and_costs_no_entry(breakable: Remote) -> None:
    client = breakable.client()
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 6)
    pid = breakable.agents()
    breakable.sshd.stop()
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING and feed.link.next_try is not None)
    feed.retry_now()
    await until(lambda: ": connect: " in feed.link.detail)
    breakable.sshd.start()
    feed.retry_now()
    known = feed.state.seq
    await until(lambda: feed.link.phase is LinkPhase.UP and feed.state.seq > known + 5)
    texts = [one.text for one in feed.state.warnings]
    assert texts == [f"tick {int(texts[0].split()[1]) + n}" for n in range(len(texts))]
    assert breakable.agents() == pid
    await feed.close()
    await client.close()


async def test_a_frozen_host_is_noticed_by_keepalive(breakable: Remote) -> None:
    client = breakable.client(keepalive_interval=0.3, keepalive_count_max=2)
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 6)
    breakable.sshd.signal_sessions(signal.SIGSTOP)
    try:
        await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
        assert "lost" in feed.link.detail
    finally:
        breakable.sshd.signal_sessions(signal.SIGCONT)
    await feed.close()
    await client.close()


async def test_a_killed_agent_is_started_again_over_the_same_connection(remote: Remote) -> None:
    route = remote.route()
    client = HttpAgentClient(route.open, "box", on_close=route.close)
    first = (await client.hello()).pid
    connection = route.host
    os.kill(first, signal.SIGKILL)
    assert await until_gone(first)
    with pytest.raises(LinkLost):
        await client.hello()
    assert (await client.hello()).pid != first
    assert route.host is connection
    await client.close()


async def test_two_consoles_bring_one_agent(remote: Remote) -> None:
    clients = [remote.client() for _ in range(2)]
    hellos = await asyncio.gather(*(client.hello() for client in clients))
    assert len({hello.pid for hello in hellos}) == 1
    for client in clients:
        await client.close()
    assert len(list((Path(remote.state) / "agent").iterdir())) == 1


async def test_a_host_without_a_fitting_python_is_told(remote: Remote) -> None:
    route = remote.route(remote.agent(python="/no/python"))
    with pytest.raises(StageError, match=r"E141 .*found none of /no/python") as refused:
        await route.open()
    await route.close()
    assert refused.value.stage is Stage.PYTHON
    assert not Path(remote.state).exists()


async def test_an_agent_that_cannot_start_is_told_with_its_log(remote: Remote) -> None:
    broken = remote.agent(extras=BundleExtras({"fake_agent.py": b"raise SystemExit('no driver')\n"}))
    route = remote.route(broken)
    with pytest.raises(StageError, match="the agent ended at once; its log ends: no driver") as refused:
        await route.open()
    assert refused.value.stage is Stage.HANDSHAKE
    await route.close()


async def test_a_state_directory_that_cannot_be_written_names_the_stage(remote: Remote) -> None:
    route = remote.route(remote.agent(state="/proc/nowhere"))
    with pytest.raises(StageError) as refused:
        await route.open()
    assert refused.value.stage is Stage.UPLOAD
    assert "/proc/nowhere" in str(refused.value)
    await route.close()


async def test_a_link_lost_during_the_upload_leaves_nothing_to_start_from(breakable: Remote) -> None:
    host = await connect_ssh(breakable.sshd.spec, breakable.sshd.settings())
    deployment = HostDeployment(host, breakable.agent(), breakable.stages.append)
    socket = await deployment.find()
    starting = asyncio.create_task(deployment.start(socket))
    agents = Path(breakable.state) / "agent"
    await until(lambda: list(agents.glob(".*.part")))
    breakable.sshd.kill_sessions()
    with pytest.raises(LinkLost):
        await starting
    assert not [one for one in agents.iterdir() if not one.name.startswith(".")]
    await host.close()
    client = breakable.client()
    assert (await client.hello()).pid in breakable.agents()
    await client.close()


async def test_noisy_login_scripts_do_no_harm(remote: Remote) -> None:
    if remote.sshd.user.pw_name != USER:
        pytest.skip("only a test account's login scripts may be changed")
    rc = Path(remote.sshd.user.pw_dir) / ".bashrc"
    before = rc.read_bytes() if rc.exists() else None
    rc.write_text("echo 'Welcome! {'; echo 'warning' >&2; printf '\\377\\n'\n")
    try:
        client = remote.client()
        assert (await client.hello()).hostname == "fake-host"
        await client.close()
    finally:
        if before is None:
            rc.unlink()
        else:
            rc.write_bytes(before)


async def test_a_foreign_socket_folder_on_the_host_is_refused(remote: Remote, host: HostConnection) -> None:
    deployment = HostDeployment(host, remote.agent())
    folder = Path(await deployment.find()).parent
    await host.run(["mkdir", "-p", "-m", "0700", str(folder.parent)])
    await host.run(["mkdir", "-m", "0777", str(folder)])
    await host.run(["chmod", "0777", str(folder)])
    route = remote.route()
    with pytest.raises(StageError, match=r"E130 .* has mode 0777") as refused:
        await route.open()
    assert refused.value.final
    assert remote.agents() == []
    await route.close()
