"""Hosts as they are found: each works, or says in one sentence why not and what to do. Real sshd, real accounts."""

import asyncio
import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fake_agent import RUN
from odd_account import account, fill, folder, mounted, remount
from remote_agent import Remote
from sshd import prepared
from sweeps import cells, deployment, submission
from waiting import until

from ddconsole.core.wire import Submission
from ddconsole.link.bundle import BundleExtras
from ddconsole.link.client import AgentError, LinkPhase
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror
from ddconsole.link.ssh_host import connect_ssh
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh


NO_FORWARDING = "DisableForwarding yes"


@pytest.fixture(scope="module")
def brought() -> Iterator[Path]:
    """Where the bundle stays for those tests that are not about bringing it: unpacking and compiling take seconds."""
    with folder("brought") as path:
        path.chmod(0o777)
        yield path


@contextlib.contextmanager
def host_of(
    cache: Path, home: Path, shell: str = "/bin/bash", files: dict[str, str] | None = None, extra: str = ""
) -> Iterator[Remote]:
    """A host with one odd account."""
    with account(home, shell, files) as user, prepared(extra=extra) as sshd:
        sshd.user = user
        sshd.start()
        yield Remote(sshd, cache)


async def works(remote: Remote, state: Path | None = None, **agent: object) -> HttpAgentClient:
    """An agent is brought, started, and tells its journal."""
    if state is not None:
        remote.state = str(state / "state")
    client = remote.client(remote.agent(state=remote.state, **agent))
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 5, 60.0, "for a journal")
    assert (await feed.command("stop", ["c001"])).taken
    await feed.close()
    return client


async def refused(remote: Remote, stage: Stage, what: str, **agent: object) -> StageError:
    """It ends at that stage with one sentence, and leaves no process."""
    route = remote.route(remote.agent(**agent))
    with pytest.raises(StageError, match=what) as told:
        await route.open()
    await route.close()
    assert told.value.stage is stage
    assert told.value.do
    assert "Traceback" not in str(told.value)
    assert remote.agents() == []
    return told.value


# --- sshd


@pytest.mark.parametrize("option", ["AllowTcpForwarding no", NO_FORWARDING, "MaxSessions 2"])
async def test_what_sshd_forbids_is_gone_round(cache: Path, brought: Path, option: str) -> None:
    with folder() as home, host_of(cache, home, extra=option) as remote:
        await (await works(remote, brought)).close()
        host = await connect_ssh(remote.sshd.spec, remote.sshd.settings())
        done = await asyncio.gather(*(host.run(["sh", "-c", "sleep 0.1; echo up"]) for _ in range(6)))
        assert {one.stdout for one in done} == {b"up\n"}
        await host.close()


TIGHT = f"MaxSessions 2\n{NO_FORWARDING}"


def bridges(remote: Remote) -> int:
    """Commands on the host that carry bytes to the agent."""
    assert remote.sshd.process is not None
    found = 0
    for one in psutil.Process(remote.sshd.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += "b64decode" in " ".join(one.cmdline()) and "python" in one.name()
    return found


async def test_few_sessions_and_no_forwarding_need_further_connections(
    cache: Path, brought: Path, tmp_path: Path
) -> None:
    """Journal, live values, commands, greetings and the copy of the run at the same time: more than two sessions."""
    with folder() as home, host_of(cache, home, extra=TIGHT) as remote:
        remote.state = str(brought / "state")
        client = remote.client(remote.agent(state=remote.state))
        mirror = Mirror(client, RUN, tmp_path / RUN)
        feed = LiveRunFeed(client, RUN, journal=mirror.journal, ping_interval=0.05)
        feed.start()
        mirror.start(reads_journal=False)
        await until(lambda: feed.state.seq > 5 and bridges(remote) > 2, 60.0, "for a journal and more than two bridges")
        since, greeted = feed.link.since, feed.link.round_trip
        answers = await asyncio.gather(*(feed.command("stop", ["c001"]) for _ in range(3)))
        assert all(one.taken for one in answers)
        await until(lambda: feed.link.round_trip != greeted, 20.0, "for another greeting")
        assert (feed.link.phase, feed.link.since) == (LinkPhase.UP, since)
        assert mirror.problems == []
        await feed.close()
        await mirror.close()
        await client.close()


async def test_few_sessions_no_forwarding_and_no_further_login_are_told(cache: Path, brought: Path) -> None:
    with folder() as home, host_of(cache, home, extra=TIGHT) as remote:
        remote.state = str(brought / "state")
        client = remote.client(remote.agent(state=remote.state))
        await client.hello()
        (remote.sshd.folder / "authorized_keys").write_bytes(b"")
        feed = LiveRunFeed(client, RUN)
        feed.start()
        await until(lambda: feed.state.seq > 5 and bridges(remote) == 2, 60.0, "for a journal and live values")
        since = feed.link.since
        answer = await feed.command("stop", ["c001"])
        assert not answer.taken
        assert "opens no further session" in answer.text
        assert "AllowStreamLocalForwarding" in answer.text
        assert (feed.link.phase, feed.link.since) == (LinkPhase.UP, since)
        await feed.close()
        await client.close()


# --- the home


async def test_a_home_with_a_long_path_works(cache: Path) -> None:
    with folder("h" * 60) as top:
        home = top / ("ö" * 20 + "'" + "x" * 39)
        home.mkdir()
        assert len(os.fsencode(home)) > 120
        with host_of(cache, home) as remote:
            await (await works(remote)).close()


async def test_a_read_only_home_is_told_and_another_folder_works(cache: Path) -> None:
    with folder() as home, mounted(home, "size=64m"), host_of(cache, home) as remote, folder("state") as elsewhere:
        remount(home, "ro")
        told = await refused(remote, Stage.UPLOAD, r"E142 .* is on a read-only file system")
        assert "agent: {state: /path}" in told.do
        os.chown(elsewhere, remote.sshd.user.pw_uid, -1)
        await (await works(remote, elsewhere)).close()


async def test_a_home_that_may_not_be_written_to_is_told(cache: Path) -> None:
    with folder() as home, host_of(cache, home) as remote:
        os.chown(home, 0, 0)
        await refused(remote, Stage.UPLOAD, r"E142 .* may not be written to")


async def test_a_noexec_home_is_told(cache: Path) -> None:
    with folder() as home, mounted(home, "size=64m,noexec"), host_of(cache, home) as remote:
        await refused(remote, Stage.UPLOAD, r"E143 .* mounted noexec .* no module can be loaded")


async def test_a_full_disk_is_told_before_anything_is_sent(cache: Path) -> None:
    with folder() as home, mounted(home, "size=20m"), host_of(cache, home) as remote:
        await refused(remote, Stage.UPLOAD, r"E144 .* has 20 MiB free, the agent needs \d+ MiB")
        assert list(home.iterdir()) == []


async def test_a_disk_that_fills_up_during_the_upload_leaves_nothing(cache: Path) -> None:
    with folder() as home, mounted(home, "size=200m"), host_of(cache, home) as remote:
        route = remote.route()
        opening = asyncio.create_task(route.open())
        await until(lambda: list(home.rglob("*.part")), 30.0)
        filler = home / "filler"
        fill(filler)
        with pytest.raises(StageError, match=r"E144 .* MiB free|No space left on device") as told:
            await opening
        assert "make room" in told.value.do
        await route.close()
        assert not [one for one in (Path(remote.state) / "agent").iterdir() if not one.name.startswith(".")]
        filler.unlink()
        await (await works(remote)).close()


# --- the real agent on such a home

SHORT_OF_LOCKS = """
import errno, fcntl, os

HOME, real = os.path.expanduser("~") + "/", fcntl.flock


def flock(descriptor, operation):
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if os.readlink(f"/proc/self/fd/{number}").startswith(HOME):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    real(number, operation)


fcntl.flock = flock
"""
"""What a home on NFS without a lock service does to every process of the agent: loaded at its start."""


def order() -> Submission:
    """A run whose server cannot be started: its journal is what matters."""
    one = submission([deployment("d01")], cells("d01", 1), run="odd-run")
    return replace(one, engine={**one.engine, "command": ["/nowhere/python"]})


async def test_a_home_without_locks_conducts_a_run(cache: Path) -> None:
    extras = BundleExtras({"no_locks.py": SHORT_OF_LOCKS.encode(), "no_locks.pth": b"import no_locks\n"})
    with folder() as home, host_of(cache, home) as remote:
        client = remote.client(remote.agent(module="ddconsole.agent", extras=extras))
        assert await client.submit(order()) == "odd-run"
        feed = LiveRunFeed(client, "odd-run")
        feed.start()
        await until(lambda: feed.state.created, 30.0)
        run = Path(remote.state) / "runs" / "odd-run"
        await until((run / ".agent.json").exists, 30.0)
        assert not (run / ".agent.lock").exists()
        await feed.command("stop-run")
        await feed.close()
        await client.close()


async def test_a_disk_that_is_full_when_the_agent_starts_is_told_when_it_is_needed(cache: Path) -> None:
    with folder() as home, mounted(home, "size=200m"), host_of(cache, home) as remote:
        agent = remote.agent(module="ddconsole.agent", extras=BundleExtras())
        client = remote.client(agent)
        await client.hello()
        await client.quit()
        await client.close()
        await until(lambda: not remote.agents())
        fill(home / "filler")
        client = remote.client(agent)
        assert (await client.hello()).run is None
        with pytest.raises(AgentError, match=r"No space left on device|disk is full") as told:
            await client.submit(order())
        assert told.value.do
        (home / "filler").unlink()
        assert await client.submit(order()) == "odd-run"
        await client.close()


# --- the login shell


@pytest.mark.parametrize("extra", ["", NO_FORWARDING])
@pytest.mark.parametrize("shell", ["csh", "tcsh", "fish"])
async def test_other_login_shells_work(cache: Path, brought: Path, shell: str, extra: str) -> None:
    with folder() as home, host_of(cache, home, f"/usr/bin/{shell}", extra=extra) as remote:
        await (await works(remote, brought)).close()


NOISE = "echo 'Welcome! {'; echo 'warning' >&2; printf '\\377\\n'\n"
POISON = "export PYTHONPATH=/nowhere PYTHONHOME=/nowhere PYTHONSTARTUP=/nowhere PYTHONINSPECT=1\n"


@pytest.mark.parametrize("extra", ["", NO_FORWARDING])
async def test_login_scripts_that_print_and_poison_do_no_harm(cache: Path, brought: Path, extra: str) -> None:
    with folder() as home, host_of(cache, home, files={".bashrc": NOISE + POISON}, extra=extra) as remote:
        await (await works(remote, brought)).close()


async def test_a_login_script_that_prints_and_ends_is_told(cache: Path) -> None:
    with folder() as home, host_of(cache, home, files={".bashrc": NOISE + "exit 0\n"}) as remote:
        told = await refused(remote, Stage.PYTHON, r"E140 the login shell printed 3 lines and exited 0: .*Welcome!")
        assert told.final


async def test_an_account_without_a_shell_is_told(cache: Path) -> None:
    with folder() as home, host_of(cache, home, "/usr/sbin/nologin") as remote:
        await refused(remote, Stage.PYTHON, r"E140 the login shell printed .* exited 1: .*not available")


# --- its Python


async def test_a_python_that_is_too_old_is_told(cache: Path) -> None:
    old = """#!/bin/sh\necho '["/opt/python3.6", [3, 6, 8], null, "x86_64", ["glibc", "2.17"]]'; exit 1\n"""
    with folder() as home, host_of(cache, home, files={"python3": old, ".bashrc": "PATH=$HOME:/bin/none\n"}) as remote:
        (home / "python3").chmod(0o755)
        for name in ("sh", "id"):
            (home / name).symlink_to(f"/bin/{name}")
        await refused(remote, Stage.PYTHON, r"E141 needs Python 3\.11 or newer, found 3\.6\.8 at /opt/python3\.6")


def contents(place: Path) -> str:
    """One hash over all names, times and bytes of a folder."""
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        about = path.lstat()
        digest.update(f"{path.relative_to(place)} {about.st_mode} {about.st_mtime_ns}".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


async def test_a_serving_environment_lends_its_interpreter_and_nothing_else(cache: Path, brought: Path) -> None:
    with folder() as home, folder("serving") as serving:
        argv = ["/usr/bin/python3", "-m", "venv", "--without-pip", str(serving)]
        await asyncio.to_thread(subprocess.run, argv, check=True)
        site = next(serving.glob("lib/python3*/site-packages"))
        # What a serving environment may hold: modules of the agent's names, and a file that runs at every start.
        (site / "aiohttp.py").write_text("raise SystemExit('the serving environment was read')\n")
        (site / "started.py").write_text("open('/tmp/x', 'w')\n")
        (site / "started.pth").write_text("import started\n")
        nothing = "PATH=$HOME:/bin/none\n"
        with host_of(cache, home, files={".bashrc": nothing}) as remote:
            for name in ("sh", "id"):
                (home / name).symlink_to(f"/bin/{name}")
            for path in [serving, *serving.rglob("*")]:
                os.chown(path, remote.sshd.user.pw_uid, -1, follow_symlinks=False)
            before = contents(serving)
            client = await works(remote, brought, serving_python=f"{serving}/bin/python")
            opened = {one.path for one in psutil.Process((await client.hello()).pid).memory_maps()}
            assert not [path for path in opened if path.startswith(str(serving))]
            await client.close()
            assert contents(serving) == before
