"""The checks of the Proxmox host below the container: each seen passing, failing or warning, and unknown."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from proxmox_host import CLASSIC, LSPCI, LXC, QEMU, proxmox_host
from synthetic_host import SyntheticHost

from ddconsole.preflight.check import Outcome, Tier
from ddconsole.preflight.facts import Facts, Reach
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedMachine
from ddconsole.preflight.register import PROXMOX_CHECKS
from ddconsole.preflight.run_checks import run_checks

FAIL, WARN, UNKNOWN = Outcome.FAIL, Outcome.WARN, Outcome.UNKNOWN
Change = Callable[[RecordedMachine], None]
XID = "[  900.1] NVRM: Xid (PCI:0000:15:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"


@dataclass(frozen=True)
class Case:
    """One thing that is otherwise on the host, and what is said of it."""

    check: str
    change: Change
    outcome: Outcome
    observed: str
    remedy: str = ""


def program(name: str, out: str = "", code: int | None = 0, err: str = "") -> Change:
    return lambda machine: machine.programs.update({name: Ran(code, out, err, 0.1)})


def no_program(name: str) -> Change:
    def change(machine: RecordedMachine) -> None:
        machine.programs = {key: ran for key, ran in machine.programs.items() if key.split()[0] != name}

    return change


def file(path: str, text: str | None) -> Change:
    def change(machine: RecordedMachine) -> None:
        machine.files.pop(path, None)
        if text is not None:
            machine.files[path] = text.encode()

    return change


CASES = (
    Case("proxmox.reachable", no_program("pveversion"), FAIL, "has no `pveversion`", "proxmox: host"),
    Case("proxmox.reachable", program("pct status 200", code=2, err="does not exist"), FAIL, "200 is not known", "pct"),
    Case("proxmox.reachable", program("pveversion", code=2, err="broken"), UNKNOWN, "ended with 2: broken"),
    Case(
        "proxmox.device-rules", program("pct config 200", CLASSIC.format(major=509)), FAIL,
        "nvidia-uvm is number 511 in this boot, the container allows 195, 509", "dev0: /dev/nvidia-uvm,mode=0666",
    ),
    Case("proxmox.device-rules", program("pct config 200", CLASSIC.format(major=511)), WARN, "fixed numbers", "dev0"),
    Case("proxmox.device-rules", program("pct config 200", "arch: amd64\n"), FAIL, "is not given /dev/nvidia-uvm"),
    Case("proxmox.device-rules", file("/proc/devices", None), UNKNOWN, "/proc/devices cannot be read"),
    Case("proxmox.device-rules", program("pct config 200", code=255, err="locked"), UNKNOWN, "locked"),
    Case("proxmox.uvm-at-boot", program("test", code=1), FAIL, "nvidia-uvm is not loaded", "nvidia-modprobe -u -c=0"),
    Case("proxmox.uvm-at-boot", program("grep", code=1), WARN, "nothing loads it at boot", "pve-guests.service"),
    Case("proxmox.uvm-at-boot", no_program("grep"), UNKNOWN, "cannot be looked at"),
    Case("proxmox.xid", program("dmesg", XID), FAIL, "GPU 5: Xid 79", "reset"),
    Case("proxmox.xid", program("dmesg", "", 1, "Operation not permitted"), UNKNOWN, "nothing is known of Xids"),
    Case("proxmox.holders", file("/proc/4242/cgroup", LXC.format(117)), FAIL, "in container 117", "stop it there"),
    Case("proxmox.holders", file("/proc/4242/cgroup", QEMU.format(104)), FAIL, "in virtual machine 104"),
    Case("proxmox.holders", file("/proc/4242/cgroup", "0::/\n"), FAIL, "(sglang::schedul) in the host itself"),
    Case("proxmox.holders", no_program("fuser"), UNKNOWN, "fuser: No such file", "psmisc"),
    Case("proxmox.acs", program("lspci", LSPCI.format(sign="+")), WARN, "1 bridges redirect requests", "setpci"),
    Case("proxmox.acs", program("lspci", "Capabilities: <access denied>\n"), UNKNOWN, "extended configuration"),
    Case("proxmox.clock", program("timedatectl", "no\n"), WARN, "not set by the network", "chrony"),
    Case("proxmox.clock", program("timedatectl", "", None), UNKNOWN, "did not end within"),
)  # fmt: skip
ONLY_WARN = {"proxmox.acs", "proxmox.clock"}
"""They cost speed or order, never a result."""


def below(facts: Facts, machine: RecordedMachine) -> Facts:
    return replace(facts, machine=machine, container=200, reach=Reach("ssh pve1"))


async def test_a_host_as_it_should_be(facts: Facts) -> None:
    machine = proxmox_host()

    findings = await run_checks(below(facts, machine), Tier.PROXMOX, PROXMOX_CHECKS)

    assert {one.id: one.observed for one in findings if one.outcome is not Outcome.PASS} == {}
    assert "none of another guest" in findings[4].observed
    reading = {"pveversion", "pct", "test", "grep", "dmesg", "fuser", "lspci", "timedatectl"}
    assert {argv[0] for argv in machine.ran} == reading
    assert {argv[1] for argv in machine.ran if argv[0] == "pct"} == {"status", "config"}, "nothing is changed there"


@pytest.mark.parametrize("case", CASES, ids=lambda one: f"{one.check}, {one.outcome}")
async def test_what_is_found_and_nothing_besides(case: Case, facts: Facts, synthetic_host: SyntheticHost) -> None:
    machine = proxmox_host()
    case.change(machine)

    findings = await run_checks(below(facts, machine), Tier.PROXMOX, PROXMOX_CHECKS)

    found = {one.id: one for one in findings if one.outcome not in {Outcome.PASS, Outcome.SKIP}}
    assert set(found) == {case.check}
    assert found[case.check].outcome is case.outcome
    assert case.observed in found[case.check].observed
    assert case.remedy in found[case.check].remedy


def test_every_check_was_seen_bad_and_unknown() -> None:
    everything = {one.id for one in PROXMOX_CHECKS}

    assert everything - {case.check for case in CASES if case.outcome is FAIL} == ONLY_WARN
    assert {case.check for case in CASES if case.outcome is WARN} >= ONLY_WARN
    assert {case.check for case in CASES if case.outcome is UNKNOWN} == everything


async def test_a_host_that_cannot_be_reached_leaves_the_others_out(facts: Facts) -> None:
    away = replace(below(facts, proxmox_host()), reach=Reach("ssh pve1", "pve1: connect: refused", "start sshd"))

    first, *others = await run_checks(away, Tier.PROXMOX, PROXMOX_CHECKS)

    assert (first.outcome, first.observed, first.remedy) == (FAIL, "pve1: connect: refused", "start sshd")
    assert {one.blocked_by for one in others} == {"proxmox.reachable"}
