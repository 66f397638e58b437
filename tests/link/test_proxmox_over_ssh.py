"""The Proxmox host's checks over a real sshd: programs of its name answer as recorded."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from proxmox_host import PROGRAMS
from sshd import Sshd, prepared

from ddconsole.commands.proxmox_checks import proxmox_findings
from ddconsole.core.plan_parts import ProxmoxPart
from ddconsole.core.sweep import Deployment, Placement
from ddconsole.link.ssh_host import connect_ssh
from ddconsole.link.ssh_machine import SshMachine
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.register import PROXMOX_CHECKS


def program(name: str) -> str:
    """A script that prints what was recorded for its arguments."""
    lines = ["#!/bin/sh"]
    for key, ran in PROGRAMS.items():
        if key.split()[0] == name:
            words = " ".join(key.split()[1:])
            answer = f"printf %s {shlex.quote(ran.out)}; exit {ran.exit_code}"
            lines.append(f'case "$*" in {shlex.quote(words)}*) {answer};; esac')
    return "\n".join([*lines, "exit 3"]) + "\n"


@pytest.fixture
def below() -> Iterator[Sshd]:
    with prepared() as sshd:
        programs = sshd.folder / "bin"
        programs.mkdir(mode=0o755)
        for name in {key.split()[0] for key in PROGRAMS} - {"test"}:
            (programs / name).write_text(program(name))
            (programs / name).chmod(0o755)
        # The shell has a `test` of its own, and there is no such module here: it is told apart by its program.
        sshd.extra = f"SetEnv PATH={programs}:/usr/bin:/bin"
        sshd.start()
        yield sshd


async def test_it_is_asked_over_its_own_entry(below: Sshd) -> None:
    deployment = Deployment("d01", "ar", 1, 1, {}, {}, Placement((0,)))
    part = ProxmoxPart(host=below.spec.text, container=200)

    findings = {one.id: one for one in await proxmox_findings(part, None, (deployment,), below.settings())}

    assert list(findings) == [one.id for one in PROXMOX_CHECKS]
    assert findings["proxmox.reachable"].observed == "container 200 is running"
    assert findings["proxmox.clock"].outcome is Outcome.PASS
    assert findings["proxmox.uvm-at-boot"].observed == "nvidia-uvm is not loaded", "there is none on this machine"
    assert {one.outcome for one in findings.values()} <= {Outcome.PASS, Outcome.FAIL, Outcome.SKIP, Outcome.UNKNOWN}


async def test_a_host_that_is_away_is_a_finding(below: Sshd) -> None:
    below.stop()

    first, *others = await proxmox_findings(ProxmoxPart(host=below.spec.text), None, (), below.settings())

    assert first.outcome is Outcome.FAIL
    assert "connect: " in first.observed
    assert {one.blocked_by for one in others} == {"proxmox.reachable"}


async def test_files_and_programs_and_nothing_that_needs_ours(below: Sshd, tmp_path: Path) -> None:
    connection = await connect_ssh(below.spec, below.settings())
    machine = SshMachine(connection)
    try:
        assert "Character devices" in await machine.read_text("/proc/devices")
        with pytest.raises(FileNotFoundError, match="No such file"):
            await machine.read_text("/nowhere")
        assert (await machine.run(("no-such-program",), 5.0)).exit_code == 127
        assert (await machine.run(("sh", "-c", "echo $A"), 5.0, {"A": "b c"})).out == "b c\n"
        for asked in (machine.open_device("/dev/null", 1.0), machine.status("/"), machine.list_folder("/")):
            with pytest.raises(OSError, match="none of our programs"):
                await asked
    finally:
        await connection.close()
