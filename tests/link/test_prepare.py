"""A host made ready beforehand, over a real sshd, and a start from it with no package index to be reached."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from odd_account import account, folder
from remote_agent import Remote
from sshd import Sshd, prepared

from ddconsole.link.prepare import prepare_host
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh


async def prepare(remote: Remote) -> bool:
    """Whether something was uploaded."""
    done = await prepare_host(remote.sshd.spec.text, remote.agent(), remote.sshd.settings(), None, remote.stages.append)
    assert done.state == remote.state
    assert Path(done.brought.folder).is_dir()
    assert done.brought.bundle.size < done.brought.bundle.unpacked
    return done.brought.uploaded


async def test_a_prepared_host_starts_without_anything_but_the_link(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await prepare(remote)
    assert Stage.START not in remote.stages
    assert remote.agents() == []
    assert not await prepare(remote)
    # Nobody listens there: whoever asked for a package would be refused.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    before = {path: path.stat().st_mtime_ns for path in Path(remote.state).rglob("*.py")}
    client = remote.client()
    assert (await client.hello()).hostname == "fake-host"
    await client.close()
    assert {path: path.stat().st_mtime_ns for path in Path(remote.state).rglob("*.py")} == before


async def test_a_folder_that_somebody_changed_there_is_told(remote: Remote) -> None:
    assert await prepare(remote)
    changed = next(Path(remote.state).glob("agent/*/lib/python3*/site-packages/ddconsole/__init__.py"))
    changed.write_text("changed = True\n")
    with pytest.raises(StageError, match=r"E145 .* was changed there"):
        await prepare(remote)


def ddconsole(sshd: Sshd, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line as an operator has it: an alias in an ssh configuration of their own, and a dead index."""
    environment = {**os.environ, "HOME": str(home), "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "SSH_AUTH_SOCK"):
        environment.pop(name, None)
    argv = [sys.executable, "-m", "ddconsole", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=100)


def test_the_verb_says_what_it_did_with_sizes(tmp_path: Path) -> None:
    with folder() as home, account(home) as user, prepared() as sshd:
        sshd.user = user
        sshd.start()
        (tmp_path / ".ssh").mkdir(mode=0o700)
        (tmp_path / ".ssh/config").write_text(
            f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n User {user.pw_name}\n"
            f" IdentityFile {sshd.folder}/client_key\n UserKnownHostsFile {sshd.folder}/known_hosts\n"
        )
        done = ddconsole(sshd, tmp_path, "host", "prepare", "box")
        assert done.returncode == 0, done.stderr
        assert "box: Python 3." in done.stdout
        assert "uploaded, " in done.stdout
        assert "its hash is right" in done.stdout
        assert "nothing was started" in done.stdout
        again = json.loads(ddconsole(sshd, tmp_path, "prepare", "box", "--json", "--python", "/usr/bin/python3").stdout)
        assert (again["uploaded"], again["python"]) == (False, "/usr/bin/python3")
        assert again["unpacked_bytes"] > again["packed_bytes"] > 1_000_000
        # What was named once is meant by verbs that read no plan.
        choices = json.loads((tmp_path / ".local/state/ddconsole/hosts.json").read_text())
        assert choices == {"box": {"python": "/usr/bin/python3"}}
        wrong = ddconsole(sshd, tmp_path, "host", "box", "other")
        assert (wrong.returncode, wrong.stderr) == (2, "ddconsole: host takes one machine, not box and other\n")
        assert ddconsole(sshd, tmp_path, "prepare", "local").returncode == 2
