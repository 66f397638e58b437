"""What only the Proxmox host below the container can tell. Its machine is asked read-only questions, nothing else.

`facts.machine` is that host here, `facts.host` the container's sample: PCI addresses are the same on both.
"""

import re
from collections.abc import Awaitable, Callable

from ddconsole.core.visible_text import visible_line
from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.checks import kernel_log
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran

_DEADLINE = 8.0
_LONG = 20.0
"""Seconds for `lspci -vvv`, which reads the configuration of every device."""
_ENTRY = "dev0: /dev/nvidia-uvm,mode=0666"
_OWN = frozenset({"nvidia-persiste", "nvidia-persistenced", "nvidia-smi"})
"""The driver's own programs: they hold device nodes and no memory."""


async def _reachable(facts: Facts) -> Verdict:
    if facts.reach.problem:
        return failed(facts.reach.problem, "a Proxmox host answers", facts.reach.remedy)
    problem, ran = await _asked(facts, "pveversion")
    expected = "a Proxmox host answers"
    if ran is None:
        text = f"{facts.reach.how} has no `pveversion`: {problem}"
        return failed(text, expected, "correct the plan's `proxmox: host:`; it is the host below the container")
    if ran.exit_code != 0:
        return unknown(f"`pveversion` ended with {ran.exit_code}: {visible_line(ran.err.strip()[-120:])}")
    if facts.container is None:
        return passed(visible_line(ran.out.strip()[:80]), expected, [f"pveversion: {visible_line(ran.out.strip())}"])
    problem, status = await _asked(facts, "pct", "status", str(facts.container))
    if status is None or status.exit_code != 0:
        said = problem if status is None else visible_line(status.err.strip()[-120:])
        remedy = "correct the plan's `proxmox: container:` (`pct list` names them); `pct` needs root"
        return failed(f"container {facts.container} is not known there: {said}", expected, remedy)
    state = status.out.strip().removeprefix("status: ")
    return passed(f"container {facts.container} is {visible_line(state)}", expected, [visible_line(ran.out.strip())])


async def _device_rules(facts: Facts) -> Verdict:
    """The container's configuration against the driver's numbers of this boot."""
    if facts.container is None:
        return skipped("the plan's `proxmox:` names no container")
    problem, ran = await _asked(facts, "pct", "config", str(facts.container))
    if ran is None or ran.exit_code != 0:
        return unknown(f"`pct config` does not answer: {problem or (ran and visible_line(ran.err.strip()[-120:]))}")
    try:
        table = await facts.machine.read_text("/proc/devices")
    except OSError as missing:
        return unknown(f"/proc/devices cannot be read there: {missing.strerror or missing}")
    major = re.search(r"^\s*(\d+) nvidia-uvm$", table, re.MULTILINE)
    lines = [line.strip() for line in ran.out.splitlines() if "nvidia" in line or "devices.allow" in line]
    evidence = [*(visible_line(line) for line in lines), f"/proc/devices: nvidia-uvm {major[1] if major else 'none'}"]
    expected = "device nodes by `devN:`, which follow the driver's numbers at each start"
    if any(re.match(r"dev\d+:\s*/dev/nvidia-uvm\b", line) for line in lines):
        return passed("the nodes follow the driver's numbers", expected, evidence)
    if not any("/dev/nvidia-uvm" in line for line in lines):
        remedy = f"`pct set {facts.container} -{_ENTRY.replace(': ', ' ')}`, for each node; then restart it"
        return failed("the container is not given /dev/nvidia-uvm", expected, remedy, evidence)
    allowed = {number for line in lines for number in re.findall(r"devices\.allow\S*\s*c\s+(\d+|\*):", line)}
    if major and allowed and not allowed & {major[1], "*"}:
        observed = f"nvidia-uvm is number {major[1]} in this boot, the container allows {', '.join(sorted(allowed))}"
        remedy = f"`{_ENTRY}` instead of the fixed numbers, then restart the container"
        return failed(observed, expected, remedy, evidence)
    observed = "fixed numbers, right in this boot; another boot may give others, and a missing node becomes a file"
    return warned(observed, expected, f"`{_ENTRY}` instead of lxc.mount.entry and devices.allow", evidence)


async def _uvm_at_boot(facts: Facts) -> Verdict:
    places = ("/etc/modules", "/etc/modules-load.d", "/etc/systemd/system", "/etc/udev/rules.d")
    _, loaded = await _asked(facts, "test", "-d", "/sys/module/nvidia_uvm")
    problem, found = await _asked(facts, "grep", "-rlsE", "nvidia[-_]uvm|nvidia-modprobe", *places)
    if loaded is None or found is None or found.exit_code not in {0, 1, 2}:
        return unknown(f"it cannot be looked at: {problem}")
    names = [visible_line(name) for name in found.out.splitlines()]
    expected = "nvidia-uvm is loaded, and again at each boot before guests start"
    evidence = [f"/sys/module/nvidia_uvm: {'there' if loaded.exit_code == 0 else 'not there'}", *names[:6]]
    remedy = "a unit before pve-guests.service that runs `nvidia-modprobe -u -c=0`, or nvidia-uvm in /etc/modules"
    if loaded.exit_code != 0:
        return failed("nvidia-uvm is not loaded", expected, f"`nvidia-modprobe -u -c=0` now; {remedy}", evidence)
    if not names:
        observed = "nvidia-uvm is loaded now, and nothing loads it at boot: its first user does"
        return warned(observed, expected, remedy, evidence)
    return passed(f"loaded, and at boot by {names[0]}", expected, evidence)


async def _holders(facts: Facts) -> Verdict:
    """Who has the needed GPUs' nodes open, as the host numbers processes, and in which container each is."""
    minors = [gpu.minor.value for gpu in facts.needed()]
    nodes = [f"/dev/nvidia{minor}" for minor in minors if minor is not None]
    if not nodes:
        return skipped("the plan uses no GPU") if not minors else unknown("the GPUs' device nodes are not known")
    problem, ran = await _asked(facts, "fuser", *nodes)
    if ran is None:
        return unknown(f"fuser: {problem}", "on the Proxmox host: `apt install psmisc`")
    pids = sorted({int(word) for word in re.findall(r"\d+", ran.out)})
    if ran.exit_code not in {0, 1} or (ran.exit_code == 0 and not pids):
        return unknown(f"fuser ended with {ran.exit_code}: {visible_line(ran.err.strip()[-120:])}", "it needs root")
    expected = "nobody outside the container"
    evidence: list[str] = []
    outside: list[str] = []
    for pid in pids:
        where, command = await _whereabouts(facts, pid)
        evidence.append(f"pid {pid} {command} in {where}")
        inside = facts.container is not None and where == f"container {facts.container}"
        if not inside and command not in _OWN:
            outside.append(f"pid {pid} ({command}) in {where}")
    if outside:
        remedy = "stop it there, or take the GPU out of the other guest's configuration"
        return failed("; ".join(outside), expected, remedy, evidence)
    return passed(f"{len(pids)} processes have the nodes open, none of another guest", expected, evidence)


async def _whereabouts(facts: Facts, pid: int) -> tuple[str, str]:
    try:
        groups = await facts.machine.read_text(f"/proc/{pid}/cgroup")
        command = (await facts.machine.read_text(f"/proc/{pid}/comm")).strip()
    except OSError:
        return "nowhere: it has ended", "?"
    match = re.search(r"/(?:lxc|lxc\.payload)/(\d+)", groups)
    guest = re.search(r"/qemu\.slice/(\d+)\.scope", groups)
    if match:
        return f"container {match[1]}", visible_line(command)
    return (f"virtual machine {guest[1]}" if guest else "the host itself"), visible_line(command)


async def _acs(facts: Facts) -> Verdict:
    """Access control services send copies between GPUs up to the root complex and back."""
    if not facts.plan.groups:
        return skipped("no placement has more than one GPU")
    problem, ran = await _asked(facts, "lspci", "-vvv", deadline=_LONG)
    if ran is None or ran.exit_code != 0:
        return unknown(f"lspci: {problem or f'ended with {ran and ran.exit_code}'}")
    if "ACSCtl" not in ran.out:
        denied = "access denied" in ran.out
        why = "lspci may not read the bridges' extended configuration" if denied else "no bridge tells of ACS"
        return unknown(why, "as root there: `lspci -vvv | grep ACSCtl`")
    redirecting: list[str] = []
    device = ""
    for line in ran.out.splitlines():
        device = line if line[:1].isalnum() else device
        if "ACSCtl:" in line and "ReqRedir+" in line:
            redirecting.append(visible_line(device[:60]))
    expected = "no bridge sends copies between GPUs up to the root complex"
    evidence = redirecting[:8] or ["ACSCtl: ReqRedir- on all bridges"]
    if redirecting:
        remedy = (
            "prove copies with `--tier load`; where no other guest needs it: `setpci -s BRIDGE ECAP_ACS+6.w=0000`, or "
            "ACS off in the firmware"
        )
        return warned(f"{len(redirecting)} bridges redirect requests", expected, remedy, evidence)
    return passed("no bridge redirects", expected, evidence)


async def _clock(facts: Facts) -> Verdict:
    problem, ran = await _asked(facts, "timedatectl", "show", "--property=NTPSynchronized", "--value")
    if ran is None or ran.exit_code != 0:
        return unknown(f"timedatectl: {problem or (ran and visible_line(ran.err.strip()[-120:]))}")
    word = ran.out.strip()
    evidence = [f"NTPSynchronized: {visible_line(word)}"]
    if word == "yes":
        return passed("it is set by the network", "the clock of host and container is right", evidence)
    if word != "no":
        return unknown(f"timedatectl says {visible_line(word)!r}", "", evidence)
    remedy = "`systemctl enable --now chrony` there: containers have its clock"
    return warned("its clock is not set by the network", "the clock of host and container is right", remedy, evidence)


async def _asked(facts: Facts, *argv: str, deadline: float = _DEADLINE) -> tuple[str, Ran | None]:
    """What a program said, or why there is nothing."""
    try:
        ran = await facts.machine.run(argv, deadline)
    except OSError as problem:
        return problem.strerror or str(problem), None
    if ran.exit_code is None:
        return f"{argv[0]} did not end within {deadline:g} s", None
    if ran.exit_code == 127:  # a shell's word for a program that is not there
        return visible_line(ran.err.strip()[-120:]) or "not found", None
    return "", ran


_FIRST = "proxmox.reachable"


def _check(
    name: str, proves: str, run: Callable[[Facts], Awaitable[Verdict]], blocks: str = "launch", deadline: float = 30.0
) -> Check:
    needs = () if name == _FIRST else (_FIRST,)
    return Check(name, proves, run, needs, (blocks,), Tier.PROXMOX, deadline)


CHECKS = (
    _check(_FIRST, "the Proxmox host below the container answers", _reachable),
    _check("proxmox.device-rules", "the container gets the driver's devices, also after a reboot", _device_rules),
    _check("proxmox.uvm-at-boot", "nvidia-uvm is loaded, and will be before containers start", _uvm_at_boot),
    _check("proxmox.xid", "the host's kernel reported no fault of a needed GPU since it was booted", kernel_log.run),
    _check("proxmox.holders", "no other guest uses the needed GPUs", _holders),
    _check("proxmox.acs", "no bridge stands in the way of copies between GPUs", _acs, "comparison", 40.0),
    _check("proxmox.clock", "the host's clock is set by the network", _clock, "comparison"),
)
