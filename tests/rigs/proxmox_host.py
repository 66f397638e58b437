"""A Proxmox host as its programs and files answer: made up after their documented forms. Synthetic."""

from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedMachine

CONFIG = """arch: amd64
cores: 128
dev0: /dev/nvidia-uvm,mode=0666
dev1: /dev/nvidia4,mode=0666
hostname: ct200
memory: 524288
unprivileged: 0
"""
CLASSIC = """arch: amd64
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c {major}:* rwm
lxc.mount.entry: /dev/nvidia4 dev/nvidia4 none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file
"""
DEVICES = "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n259 blkext\n"
LSPCI = """00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 14ab
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid{sign} TransBlk- ReqRedir{sign} CmpltRedir{sign} UpstreamFwd{sign} EgressCtrl- DirectTrans-
01:00.0 3D controller: NVIDIA Corporation Device 2bb5
"""
LXC, QEMU, BARE = "0::/lxc/{0}/ns/user.slice\n", "0::/qemu.slice/{0}.scope\n", "0::/system.slice/bench.service\n"
NODES = tuple(f"/dev/nvidia{minor}" for minor in (4, 5, 6, 7))
PROGRAMS: dict[str, Ran] = {
    "pveversion": Ran(0, "pve-manager/9.1.2/6f3a2b (running kernel: 6.14.11-4-pve)\n", "", 0.1),
    "pct status 200": Ran(0, "status: running\n", "", 0.2),
    "pct config 200": Ran(0, CONFIG, "", 0.2),
    "test": Ran(0, "", "", 0.0),
    "grep": Ran(0, "/etc/systemd/system/nvidia-uvm.service\n", "", 0.0),
    "dmesg": Ran(0, "[    0.0] Linux version 6.14.11-4-pve\n[   12.3] NVRM: loading\n", "", 0.0),
    "fuser": Ran(0, " 900 4242", "/dev/nvidia4:  m", 0.3),
    "lspci": Ran(0, LSPCI.format(sign="-"), "", 1.2),
    "timedatectl": Ran(0, "yes\n", "", 0.1),
}
FILES: dict[str, str] = {
    "/proc/devices": DEVICES,
    "/proc/900/cgroup": "0::/system.slice/nvidia-persistenced.service\n",
    "/proc/900/comm": "nvidia-persiste\n",
    "/proc/4242/cgroup": LXC.format(200),
    "/proc/4242/comm": "sglang::schedul\n",
}


def proxmox_host() -> RecordedMachine:
    """As it should be."""
    return RecordedMachine(
        files={path: text.encode() for path, text in FILES.items()},
        programs=dict(PROGRAMS),
    )
