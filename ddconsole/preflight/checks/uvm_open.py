"""/dev/nvidia-uvm opens: CUDA needs it and nvidia-smi does not, so everything else can be green without it."""

import re

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped
from ddconsole.preflight.facts import Facts

DEVICE = "/dev/nvidia-uvm"
WSL_DEVICE = "/dev/dxg"
_DEADLINE = 8.0
_EXPECTED = "it opens for reading and writing"
_LOAD = "on the host: `nvidia-modprobe -u -c=0`"
_ENTRY = "`devN: /dev/nvidia-uvm,mode=0666`, or lxc.cgroup2.devices.allow and lxc.mount.entry"

_ALLOW = (
    "on the host, allow the device in the container's configuration with the major number that /proc/devices shows "
    f"now ({_ENTRY}), and restart the container"
)
_MODE = "on the host: mode 0666 for it (udev rule, or `devN: /dev/nvidia-uvm,mode=0666`); restart the container"
_MAKE = (
    f"{_LOAD}; in a container also map the device ({_ENTRY}) and restart it. After a reboot of the host the module is "
    "loaded only by its first user: load it before the container starts"
)
_MAKE_ANEW = f"{_LOAD}; then make the node anew with the major number in /proc/devices (restart the container)"

CAUSES = {
    "EPERM": ("the container's device rules forbid it (device cgroup)", _ALLOW),
    "EACCES": ("its mode bits or owner forbid it (no 0666, or a container maps its owner to nobody)", _MODE),
    "ENOENT": ("the device node is not there", _MAKE),
    "ENXIO": ("no driver stands behind the node: module not loaded, or a major number of an earlier boot", _MAKE_ANEW),
    "ENODEV": ("no driver stands behind the node: module not loaded, or a major number of an earlier boot", _MAKE_ANEW),
    "TIMEOUT": ("opening it does not return: the driver hangs", "look at the kernel log for Xid, reset or reboot"),
}
"""Symbol of the error number: what it means for this device, and what helps."""

EMPTY_FILE = (
    "it is an empty regular file, not a device: the container's mount had no source when it started",
    f"{_LOAD}, then restart the container (`optional,create=file` made the file because the host had no such node)",
)


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    status = await facts.machine.status(DEVICE)
    if status is None:
        if await facts.machine.status(WSL_DEVICE) is not None:
            return skipped("WSL has no /dev/nvidia-uvm")
        return _failed(*CAUSES["ENOENT"], "stat: ENOENT")
    if status.kind != "character":
        evidence = f"stat: {'regular file' if status.kind == 'file' else status.kind}, {status.size} bytes"
        return _failed(*EMPTY_FILE, evidence)
    evidence = f"stat: character device {status.major}, mode {status.mode:04o}"
    registered = await _registered_major(facts)
    if registered is not None and registered != status.major:
        text = (
            f"its major number {status.major} is not that of nvidia-uvm now ({registered}): another driver may answer"
        )
        return _failed(text, _MAKE_ANEW, evidence, f"/proc/devices: {registered} nvidia-uvm")
    opening = await facts.machine.open_device(DEVICE, _DEADLINE)
    if opening.error is not None:
        other = (f"opening it gives {opening.error}", "look at the kernel log of the host")
        return _failed(*CAUSES.get(opening.error, other), evidence, f"open(O_RDWR): {opening.error}")
    return passed("it opens", _EXPECTED, [evidence, "open(O_RDWR): opened"])


def _failed(text: str, remedy: str, *evidence: str) -> Verdict:
    return failed(text, _EXPECTED, remedy, evidence, DEVICE)


async def _registered_major(facts: Facts) -> int | None:
    """The major number of nvidia-uvm in the kernel's table, which a container sees too."""
    try:
        table = await facts.machine.read_text("/proc/devices")
    except OSError:
        return None
    match = re.search(r"^\s*(\d+) nvidia-uvm$", table, re.MULTILINE)
    return int(match[1]) if match else None


CHECK = Check("dev.uvm-open", "CUDA's memory device can be opened", _run, deadline=12.0)
