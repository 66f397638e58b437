"""The agent over a logout and a reboot, on a real systemd with logind and sshd, reached as an operator reaches it."""

import asyncio
import json
import pwd
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from served_user import CopiedEngine, copied_engine
from sshd import login_user
from surviving_agents import agents, console, until
from surviving_agents import state_of as state_of_run
from sweeps import cells, deployment, submission
from systemd_box import SystemdBox, systemd_box

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Submission
from ddconsole.link.connect import connect
from ddconsole.link.http_client import HttpAgentClient

pytestmark = [pytest.mark.ssh, pytest.mark.systemd, pytest.mark.engine, pytest.mark.timeout(240)]
RUN = "surviving"


@pytest.fixture
def box() -> Iterator[SystemdBox]:
    login_user()
    with systemd_box() as one:
        yield one


@pytest.fixture(scope="module")
def engine() -> Iterator[CopiedEngine]:
    with copied_engine() as one:
        yield one


def kill_user_processes(box: SystemdBox, *, on: bool) -> None:
    word = "yes" if on else "no"
    box.write("/etc/systemd/logind.conf", f"[Login]\nKillUserProcesses={word}\nUserStopDelaySec=1\n")
    box.run("systemctl", "restart", "systemd-logind")


async def logged_out(box: SystemdBox, user: str) -> None:
    """Until logind has let the user's last session go."""
    await until(lambda: user not in box.run("loginctl", "list-sessions", "--no-legend").stdout, "logged out")


def order_for(engine: CopiedEngine, number: int = 4) -> Submission:
    plan = [replace(deployment("d01"), env=engine.environment)]
    order = submission(plan, cells("d01", number, max_tokens=600), run=RUN)
    engine_part = {**order.engine, "command": list(engine.command), "env": engine.environment}
    return replace(order, engine=engine_part, model={"path": engine.model, "draft": None, "source": None})


def state_of(box: SystemdBox, user: pwd.struct_passwd) -> RunState:
    return state_of_run(box, user, RUN)


def ended(state: RunState) -> bool:
    return state.phase is st.RunPhase.ENDED and state.live_launch() is None


async def verdict(client: HttpAgentClient, engine: CopiedEngine) -> str:
    findings = await client.preflight(order_for(engine), "standard")
    (one,) = [finding for finding in findings if finding["id"] == "agent.survives"]
    return f"{one['outcome']}: {one['observed']}; {one['remedy']}"


async def test_with_linger_a_sweep_outlives_the_logout_where_logind_kills(
    box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user()
    kill_user_processes(box, on=True)
    box.linger(user.pw_name)
    async with console(box, user) as client:
        before = await client.hello()
        assert before.held.startswith("systemd user unit ddconsole-agent-")
        assert "survives a logout: yes: it runs in ddconsole-agent-" in await verdict(client, engine)
        await client.submit(order_for(engine))
        await until(lambda: any(row.attempts for row in state_of(box, user).cells.values()), "a cell runs")
    await logged_out(box, user.pw_name)
    seen = state_of(box, user).seq
    await until(lambda: state_of(box, user).seq > seen, "the sweep goes on")
    async with console(box, user) as client:
        after = await client.hello()
        assert (after.agent, after.pid) == (before.agent, before.pid)
        assert after.after_reboot.startswith("yes") or after.run is None
        await until(lambda: ended(state_of(box, user)), "the sweep ends")
        assert state_of(box, user).counts() == {st.CellPhase.DONE: 4}
        await until(lambda: boot_units(box, user) == [], "nothing is owed any more")
        await client.quit()
    await until(lambda: agents(box) == [], "the agent leaves when it is told to")


def boot_units(box: SystemdBox, user: pwd.struct_passwd) -> list[str]:
    folder = "/etc/systemd/system" if user.pw_uid == 0 else f"{user.pw_dir}/.config/systemd/user"
    return sorted(str(one) for one in box.path(folder).rglob("ddconsole-agent-*"))


async def test_without_linger_the_verdict_says_that_the_agent_will_die_and_it_does(
    box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user()
    kill_user_processes(box, on=True)
    async with console(box, user) as client:
        said = await verdict(client, engine)
        assert said.startswith("warn: survives a logout: no: ")
        assert f"loginctl enable-linger {user.pw_name}" in said
    await until(lambda: agents(box) == [], "logind ends it")


async def test_where_logind_kills_nobody_the_agent_lives_on_in_its_session(
    box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user()
    kill_user_processes(box, on=False)
    async with console(box, user) as client:
        before = await client.hello()
        assert before.held.startswith("a session of its own (linger is off")
        said = await verdict(client, engine)
        assert "survives a logout: yes" in said
        assert "starts again after a reboot: no: linger is off" in said
    # What is left of the session keeps it, and the user, in logind's books.
    show_user = ("loginctl", "show-user", user.pw_name, "-p", "State", "--value")
    await until(lambda: box.run(*show_user).stdout.strip() == "closing", "logged out")
    await asyncio.sleep(3)
    assert agents(box)
    async with console(box, user) as client:
        assert (await client.hello()).agent == before.agent
        await client.quit()


async def said(client: HttpAgentClient, words: str) -> None:
    """The agent says it a moment after the unit's files are there: systemd reads them in between."""
    end = time.monotonic() + 20
    while not (await client.hello()).after_reboot.startswith(words):
        assert time.monotonic() < end, (await client.hello()).after_reboot
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("who", ["user", "root"])
async def test_after_a_power_cut_the_agent_of_an_unfinished_run_is_there_by_itself(
    who: str, box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user() if who == "user" else pwd.getpwnam("root")
    if who == "user":
        box.linger(user.pw_name)
    async with console(box, user) as client:
        before = await client.hello()
        assert boot_units(box, user) == []
        await client.submit(order_for(engine, 40))
        await until(lambda: any(row.attempts for row in state_of(box, user).cells.values()), "a cell runs")
        await until(lambda: len(boot_units(box, user)) == 2, "the unit and its link")
        await said(client, "yes: by the")
    box.reboot()
    await until(lambda: len(agents(box)) >= 2, "keeper and agent, before anybody logs in")
    async with console(box, user) as client:
        hello = await client.hello()
        assert hello.agent != before.agent
        assert hello.held.endswith("(started at boot)")
        assert hello.run == RUN
        # A console that was faster than the unit may have started one more, which leaves as it finds the lock taken.
        await until(lambda: len(agents(box)) == 2, "exactly one")


async def test_a_secret_in_the_environment_is_neither_in_a_unit_nor_on_the_disk(
    box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user()
    box.linger(user.pw_name)
    host = f"{user.pw_name}@127.0.0.1:{box.sshd.port}"
    secret = {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx", "HARMLESS": "word"}
    client = await connect(host, state_directory=f"{user.pw_dir}/state", ssh=box.sshd.settings(), environment=secret)
    try:
        hello = await client.hello()
        unit = hello.held.split()[3]
        await client.submit(order_for(engine))
        await until(lambda: len(boot_units(box, user)) == 2, "the unit and its link")
    finally:
        await client.close()
    pid = box.show(unit, "MainPID", user=user.pw_name)
    assert "HF_TOKEN" not in box.show(unit, "Environment", user=user.pw_name)
    kept = json.loads(box.path(f"{user.pw_dir}/state/environment.json").read_text())
    assert (kept["HARMLESS"], "HF_TOKEN" in kept) == ("word", False)
    child = box.run("pgrep", "-P", pid).stdout.split()[0]
    assert b"HF_TOKEN=hf_abc" in box.path(f"/proc/{child}/environ").read_bytes()
    places = [f"{user.pw_dir}/state", f"{user.pw_dir}/.config", f"/tmp/ddconsole-{user.pw_uid}"]
    holding = ("grep", "-rl", "hf_abcdefghijklmnopqrstuvwx", *places)
    # What is handed to a new process lies in a file until that one has read it.
    await until(lambda: box.run(*holding, check=False).stdout == "", "no file holds it", 10)


async def test_after_a_logout_that_ended_it_the_next_agent_says_so_and_the_sweep_goes_on(
    box: SystemdBox, engine: CopiedEngine
) -> None:
    user = login_user()
    kill_user_processes(box, on=True)
    async with console(box, user) as client:
        await client.submit(order_for(engine, 12))
        await until(lambda: any(row.attempts for row in state_of(box, user).cells.values()), "a cell runs")
    await until(lambda: agents(box) == [], "logind ends it")
    assert state_of(box, user).phase is st.RunPhase.RUNNING
    async with console(box, user) as client:
        (problem,) = (await client.hello()).problems
        assert problem.startswith(f"{RUN}: the agent was ended after ")
        assert "as it is at a logout" in problem
        assert problem.endswith(f"loginctl enable-linger {user.pw_name}")
        await until(lambda: ended(state_of(box, user)), "the sweep ends")
        state = state_of(box, user)
        assert state.counts() == {st.CellPhase.DONE: 12}
        assert [one.text for one in state.warnings if one.about == "agent"] == [problem.removeprefix(f"{RUN}: ")]
        stopped = [one for row in state.cells.values() for one in row.attempts if one.outcome is st.CellPhase.STOPPED]
        assert stopped == [], "nobody has stopped a cell"
