import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from ddconsole.link.host_python import HostFacts, probe_command, probe_host
from ddconsole.link.ssh_host import Completed, HostConnection
from ddconsole.link.stages import StageError


class ShellHost:
    """A host whose login shell runs here: what `run` gives it is what sshd would."""

    host = "ct200"

    def __init__(self, shell: list[str], environment: dict[str, str]) -> None:
        self.shell = shell
        self.environment = environment

    async def run(self, argv: list[str], *, stdin: bytes = b"", deadline: float) -> Completed:  # noqa: ARG002
        text = shlex.join(argv)
        done = subprocess.run(  # noqa: ASYNC221  # a few milliseconds
            [*self.shell, text], input=stdin, capture_output=True, env=self.environment, check=False
        )
        return Completed(done.returncode, done.stdout, done.stderr)


async def facts_of(host: ShellHost, *named: str) -> HostFacts:
    return await probe_host(cast("HostConnection", host), named)


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with what the command needs, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "id"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def host(path: Path, shell: str = "/bin/sh", **environment: str) -> ShellHost:
    return ShellHost([shell, "-c"], {"PATH": str(path), "HOME": "/home/me of mine", **environment})


async def test_the_consoles_own_version_comes_first(path: Path) -> None:
    own = f"python3.{sys.version_info[1]}"
    (path / own).symlink_to(sys.executable)
    program(path, "python3.13", "echo never asked; exit 1")
    facts = await facts_of(host(path))
    assert facts.python.version == sys.version_info[:3]
    assert facts.python.path == str(path / own)
    assert facts.uid == os.geteuid()
    assert (facts.home, facts.state) == ("/home/me of mine", "/home/me of mine/.local/state/ddconsole")


async def test_the_state_directory_follows_xdg(path: Path) -> None:
    (path / "python3").symlink_to(sys.executable)
    assert (await facts_of(host(path, XDG_STATE_HOME="/data/state"))).state == "/data/state/ddconsole"


async def test_a_python_that_is_too_old_or_broken_is_passed_over_and_named(path: Path) -> None:
    old = """echo '["/usr/bin/python3.6", [3, 6, 8], null, "x86_64", ["glibc", "2.17"]]'; exit 1"""
    program(path, "python3", old)
    program(path, "python3.12", "exit 1")
    with pytest.raises(StageError, match=r"E141 needs Python 3\.11 or newer, found") as refused:
        await facts_of(host(path))
    assert "3.6.8 at /usr/bin/python3.6" in refused.value.text
    assert "python3.12 (does not run)" in refused.value.text
    assert refused.value.final


async def test_no_python_at_all_is_told(path: Path) -> None:
    with pytest.raises(StageError, match=r"E141 .* found none of python3\.13"):
        await facts_of(host(path))


async def test_a_named_python_is_the_only_one_asked(path: Path, tmp_path: Path) -> None:
    (path / "python3").symlink_to(sys.executable)
    folder = tmp_path / "with blank"
    folder.mkdir()
    (folder / "py$(x)'").symlink_to(sys.executable)
    facts = await facts_of(host(path), str(folder / "py$(x)'"))
    assert facts.python.version == sys.version_info[:3]
    with pytest.raises(StageError, match=r"E141 .*found none of /no/such/python"):
        await facts_of(host(path), "/no/such/python")


@pytest.mark.parametrize("shell", ["bash", "dash", "csh", "tcsh", "fish", "zsh"])
async def test_any_login_shell_passes_the_command_on(path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"{shell} is not installed")
    (path / "python3").symlink_to(sys.executable)
    assert (await facts_of(host(path, found))).python.version == sys.version_info[:3]


def test_the_command_holds_nothing_that_a_shell_reads_differently() -> None:
    text = probe_command("nonce")[2]
    assert not set("'!\\\n") & set(text)


async def test_login_scripts_may_print_what_they_like(path: Path, tmp_path: Path) -> None:
    (path / "python3").symlink_to(sys.executable)
    noisy = program(tmp_path, "noisy", 'printf "Welcome! {"; printf "\\377\\n" >&2; /bin/sh -c "$1"; echo "Bye }"')
    facts = await facts_of(ShellHost([str(noisy)], {"PATH": str(path), "HOME": "/h"}))
    assert facts.home == "/h"


async def test_a_shell_that_runs_nothing_is_told_with_what_it_said(tmp_path: Path) -> None:
    shell = program(tmp_path, "nologin", 'echo "This account is currently not available."; exit 1')
    with pytest.raises(StageError, match=r'E140 the login shell printed 1 lines and exited 1: "This account') as told:
        await facts_of(ShellHost([str(shell)], {}))
    assert told.value.final
