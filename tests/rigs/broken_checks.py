"""Every check: what brings a bad outcome about, and what leaves it unknown."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broken_hosts import (
    BLIND_PEERS,
    FAR,
    HALF_BAR,
    HELD,
    NO_PEERS,
    NODE_0_ONLY,
    NOT_TOLD,
    ORPHAN,
    SMALLER,
    SOMEBODY,
    STALLED,
    WARN,
    WEDGED,
    XID,
    Broken,
    Change,
    across,
    answer,
    blind,
    child,
    device,
    driver_mismatch,
    environment,
    file,
    hang,
    known,
    leftovers,
    little_memory,
    manifest_damaged,
    no_sample,
    no_versions,
    nvml,
    other_bytes,
    planned,
    port_taken,
    program,
    recorded,
    room,
    shard_cut_short,
    shm_gone,
    silent,
    stuck,
    swapping,
    unit_active,
)
from one_check import arguments, placed, plan
from synthetic_host import SyntheticHost, fields
from under_load import GPUS, capped, counted, summed, trained_down, under_load

from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import Facts, Reach
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine

GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
ASPM = "/sys/module/pcie_aspm/parameters/policy"
IOMMU = "/sys/bus/pci/devices/0000:15:00.0/iommu_group/type"
OTHER_BUILD = {"version": "0.5.9", "commit": "ffff"}
OTHER_SMOKE = tuple({"build": "0.5.9 ffff", "how": how, "run": "r0"} for how in ("plain", "dflash"))
NEW_CARD = recorded(answer(5, "nvmlDeviceGetUUID", "GPU-other"))
CAPPED = recorded(answer(5, "nvmlDeviceGetMaxClockInfo[1]", 1800))
MOVED = recorded(nvml(pairs=FAR))
REBUILT = recorded(known(build=OTHER_BUILD, smoke=OTHER_SMOKE))
LINGER = "/var/lib/systemd/linger/bench"
NO_CUDA = {"library": "/lib/libcuda.so.580.159.04", "init": 999, "name": "CUDA_ERROR_UNKNOWN"}


def flag_unknown() -> Change:
    return lambda facts, _, __: arguments(facts, **{"speculative-ddtree-bugdet": 16})


def backend(name: str) -> Change:
    return lambda facts, _, __: arguments(facts, **{"attention-backend": name})


def skewed(seconds: float) -> Change:
    return known(reach=Reach("ssh ct200", round_trip=0.02, clock_offset=seconds))


def across_nodes(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
    """Four GPUs of two nodes where four of one node would do."""
    assert facts.load is not None
    sums: dict[tuple[int, ...], Mapping[str, Any]] = {(2, 3, 4, 5): facts.load.collectives[GPUS]}
    return replace(plan(placed(facts, (2, 3, 4, 5)), displaced=()), load=replace(facts.load, collectives=sums))


BROKEN: tuple[Broken, ...] = (
    Broken(
        "host.reachable",
        known(reach=Reach("ssh ct200", "connection refused by ct200:22", "start sshd", clock_offset=0.0)),
        "connection refused by ct200:22",
        "start sshd",
    ),
    Broken("host.clock", skewed(-30.0), "the host's clock is 30.0 s behind", "timedatectl"),
    Broken("host.clock", skewed(2.0), "the host's clock is 2.0 s ahead", "Proxmox host", WARN),
    Broken("agent.survives", file(LINGER, None), "a reboot: no: linger is off", "enable-linger bench", WARN),
    Broken("disk.space", room("/var/lib/ddconsole/runs/r1", 1 << 20), "0.0 GiB free under", "make room"),
    Broken("driver.match", driver_mismatch, "kernel module 580.159.04, libcuda.so.1 575.57.08", "exactly the module's"),
    Broken("driver.answers", silent(26.0), "GPU 5, nvmlDeviceGetEccMode has not answered for 26 s", "Xid 119"),
    Broken("dev.nodes", device("/dev/nvidia5", None), "/dev/nvidia5 is not there", "map each of them"),
    Broken("dev.nodes", device("/dev/nvidiactl", RecordedDevice(kind="file")), "is a file, not a device", "restart it"),
    Broken("gpu.count", answer(3, "nvmlDeviceGetName", "NVIDIA H200"), "GPU 3 is NVIDIA H200", "not the machine"),
    Broken("dev.uvm-open", device(DEVICE, RecordedDevice("EPERM")), "device rules forbid", "lxc.cgroup2.devices.allow"),
    Broken("cuda.init", child("cuda", NO_CUDA), "cuInit gives 999 CUDA_ERROR_UNKNOWN", "/dev/nvidia-uvm first"),
    Broken(
        "gpu.recovery", answer(5, "nvmlDeviceGetFieldValues", fields(1)["value"]), "asks for a reset", "reset it on"
    ),
    Broken("gpu.ecc-errors", answer(5, "nvmlDeviceGetTotalEccErrors[1,0]", 2), "2 uncorrectable memory", "replaced"),
    Broken("gpu.row-remap", answer(5, "nvmlDeviceGetRemappedRows", [0, 1, 1, 0]), "waits to be remapped", "reset it"),
    Broken("gpu.row-remap", answer(5, "nvmlDeviceGetRemappedRows", [0, 9, 0, 1]), "could not be remapped", "replaced"),
    Broken("gpu.slowdown", answer(5, "nvmlDeviceGetCurrentClocksEventReasons", 0x84), "power brake", "power supplies"),
    Broken("gpu.xid", program("dmesg", Ran(0, XID.format(number=79), "", 0)), "Xid 79 (the GPU has fallen", "reset"),
    Broken("gpu.idle", nvml({5: WEDGED}), "GPU 5 100 % busy, no process", "reboot the host"),
    Broken("gpu.memory-free", nvml({5: HELD}), "GPU 5 has 71.0 GiB in use", "gpu.foreign-process"),
    Broken("gpu.foreign-process", nvml({5: SOMEBODY}), "pid 4242 on GPU 5", "look before you end it"),
    Broken("unit.on-needed-gpu", unit_active, "ddtree-gpu4.service is active", "`systemctl stop ddtree-gpu4"),
    Broken("proc.stuck", child("processes", stuck(driver=True)), "pid 901 hangs in the NVIDIA driver", "reboot"),
    Broken(
        "proc.leftovers",
        child("processes", {"looked": 9, "stuck": [], "servers": [ORPHAN]}),
        "orphaned servers: pid 902",
        "look whose they are",
        WARN,
    ),
    Broken("gpu.mig", answer(5, "nvmlDeviceGetMigMode", [1, 1]), "multi-instance mode is on", "nvidia-smi -mig 0"),
    Broken("gpu.compute-mode", answer(5, "nvmlDeviceGetComputeMode", 2), "prohibited", "nvidia-smi -c 0"),
    Broken("gpu.ecc-mode", answer(5, "nvmlDeviceGetEccMode", [0, 0]), "on for GPU 4, 6, 7 only", "nvidia-smi -e 1"),
    Broken("gpu.power-limit", answer(5, "nvmlDeviceGetEnforcedPowerLimit", 450000), "GPU 5 450 W", "nvidia-smi -pl"),
    Broken("gpu.memory-size", nvml({5: SMALLER}), "GPU 5 has 90.0 GiB", "error correction"),
    Broken("gpu.same-firmware", answer(5, "nvmlDeviceGetVbiosVersion", "98.02"), "GPU 5 98.02", "note it", WARN),
    Broken("gpu.bar", answer(5, "nvmlDeviceGetBAR1MemoryInfo", HALF_BAR), "256 MiB", "Resizable BAR", WARN),
    Broken("driver.persistence", answer(5, "nvmlDeviceGetPersistenceMode", 0), "GPU 5: off", "nvidia-smi -pm 1", WARN),
    Broken("port.free", port_taken, "port 30000 is taken by pid 812", "look at it first"),
    Broken("model.complete", shard_cut_short, "model-00002-of-00002.safetensors has", "from /data/models"),
    Broken("model.manifest", other_bytes, "the right size and other bytes", "started anew since"),
    Broken("memory.room", little_memory(60 << 30, 66 << 30), "5.0 of 66.0 GiB are left", "tmpfs counts to the limit"),
    Broken("shm.room", room("/dev/shm", 100 << 20), "0.1 GiB free in /dev/shm", "remount,size"),
    Broken("shm.leftovers", leftovers, "200 MiB in 21 files", "those of nobody", WARN),
    Broken("memory.swap", swapping, "9700 pages swapped in a second", "swapped out too", WARN),
    Broken("engine.flags", flag_unknown(), "speculative-ddtree-bugdet", "speculative-ddtree-budget"),
    Broken("engine.attention-backend", backend("trtllm_mha"), "is for data-centre Blackwell", "triton"),
    Broken("cuda.env", environment(CUDA_LAUNCH_BLOCKING="1"), "every kernel waits", "unset it where the agent"),
    Broken("nccl.env", planned(engine_env={"NCCL_P2P_LEVEL": "NODE"}), "no level that NCCL knows", "SYS for direct"),
    Broken("nccl.env", planned(engine_env={"NCCL_P2P_LEVL": "SYS"}), "NCCL_P2P_LEVEL is one", "correct it"),
    Broken("nccl.env", file("/etc/nccl.conf", b"NCCL_P2P_DISABLE=1\n"), "/etc/nccl.conf sets", "into the plan", WARN),
    Broken("pcie.slot", answer(5, "nvmlDeviceGetMaxPcieLinkGeneration", 4), "GPU 5: generation 4 x16", "another slot"),
    Broken("p2p.status", nvml(pairs=NO_PEERS), "6 of 6 pairs cannot", "memory of the host", WARN),
    Broken("pcie.iommu", file(IOMMU, b"DMA-FQ\n"), "translates for GPU 5", "iommu=pt", WARN),
    Broken("pcie.aspm", file(ASPM, b"default performance [powersave]\n"), "put to sleep", "pcie_aspm=off", WARN),
    Broken("numa.known", planned(expected_nodes=8), "2 NUMA nodes", "nodes per socket"),
    Broken("numa.cpus", file("/proc/self/status", NODE_0_ONLY), "no CPU of node 1", "CPUs of both sockets"),
    Broken("numa.binding", child("bind", "EPERM"), "binding memory gives EPERM", "seccomp"),
    Broken("numa.balancing", file("/proc/sys/kernel/numa_balancing", b"1\n"), "balancing is on", "sysctl", WARN),
    Broken("cpu.quota", file("/sys/fs/cgroup/cpu.max", b"400000 100000\n"), "4 CPUs' worth", "cpulimit 0", WARN),
    Broken("cpu.governor", file(GOVERNOR, b"powersave\n"), "powersave under acpi-cpufreq", "cpupower", WARN),
    Broken("host.pressure", file("/proc/pressure/memory", STALLED), "memory: 1.2 %", "wait until it is over", WARN),
    Broken("host.limits", child("limits", {"files": 256}), "256 open files", "ulimit -n"),
    Broken(
        "profile.cards",
        recorded(answer(5, "nvmlDeviceGetUUID", "GPU-other")),
        "GPU 5 at 0000:15:00.0 is gone",
        "is this the",
    ),
    Broken(
        "profile.settings",
        CAPPED,
        "1980 then, 1800 now",
        "--record",
        WARN,
    ),
    Broken("profile.topology", MOVED, "28 of 28 pairs, GPU 0-1: NODE then, SYS now", "cards were moved"),
    Broken(
        "profile.build",
        REBUILT,
        "it is 0.5.9 ffff",
        "do not compare",
        WARN,
    ),
    Broken("engine.smoke", known(smoke=()), "has not served a token yet with: dflash, plain", "is the test", WARN),
    Broken("placement.numa", across_nodes, "GPU 2, 3, 4, 5 cross NUMA 0, 1", "placement: {4: [0, 1, 2, 3]}", WARN),
    Broken(
        "load.torch",
        under_load(torch={"available": False, "said": "CUDA unknown error", "devices": [], "kernels": []}),
        "torch.cuda is not available: CUDA unknown error",
        "not one for CPUs",
    ),
    Broken("load.torch", under_load(torch={"kernels": ["sm_90", "sm_90a"]}), "no kernels for sm_120", "built for it"),
    Broken(
        "load.answers", under_load(products={5: {"tflops": 400.0, "exact": False}}), "GPU 5 computes wrong", "replaced"
    ),
    Broken("load.answers", under_load(hung="compute on GPU 5"), "compute on GPU 5 began and did not end", "Xid"),
    Broken("load.link", trained_down(times=3), "GPU 5: generation 2 x16, 5x16 is meant", "forced generation"),
    Broken("load.link", trained_down(times=1), "GPU 5: generation 2 x16", "ASPM", WARN),
    Broken(
        "load.copies", under_load(copies={5: {"to_gpu": 12.0, "from_gpu": 50.0}}), "GPU 5: 19% of its link", "load.link"
    ),
    Broken("load.clocks", capped(1200), "GPU 5 runs at 1200 MHz, the others at 1900", "nvidia-smi -rgc"),
    Broken("load.clocks", capped(1900, reasons=0x44), "GPU 5: thermal (hardware)", "fans"),
    Broken("load.peers", under_load(peers={(4, 5): {"rate": 50.0, "exact": False}}), "other bytes arrive", "ACS off"),
    Broken("load.errors", counted(aer_uncorrected=1), "GPU 5: 1 link errors were not corrected", "reseat the card"),
    Broken("load.errors", counted(pcie_replays=90), "90 packets were sent again, 31 are usual", "reseat the card"),
    Broken("load.errors", counted(aer_corrected=400), "400 link errors were corrected", "pcie_aspm=off", WARN),
    Broken("load.all-reduce", summed(exact=False), "the sums are wrong", "iommu=pt"),
    Broken("load.all-reduce", summed(hung=90.0), "no end within 90 s", "NCCL_P2P_DISABLE=1"),
    Broken("load.all-reduce", summed(problem="rank 1 ended with 1: ncclSystemError"), "ncclSystemError", "/dev/shm"),
    Broken("load.all-reduce", recorded(summed(rate=30.0)), "30.0 GB/s, 38.0 were recorded", "load.link", WARN),
    Broken("load.all-reduce", recorded(summed(rate=9.0)), "9.0 GB/s, 38.0 were recorded", "load.copies"),
    Broken("load.all-reduce", summed(ways={"SHM/direct/direct": 24}), "NCCL goes by SHM", "p2p.status", WARN),
    Broken("plan.baseline", planned(baseline="autoregressive"), "no deployment has the method", "correct `baseline:`"),
)
"""For every check that can fail, a failure; for the others, a warning."""

UNKNOWN: tuple[tuple[str, Change, str], ...] = (
    ("host.reachable", hang("run"), "no answer within"),
    ("host.clock", known(reach=Reach("ssh ct200")), "did not compare its clock"),
    ("agent.survives", program("id", Ran(1, "", "no such user", 0)), "does not say who"),
    ("disk.space", hang("disk_room"), "no answer within"),
    ("driver.match", no_versions, "fewer than two versions"),
    ("driver.answers", silent(1.0), "it was still being asked"),
    ("dev.nodes", hang("status"), "no answer within"),
    ("gpu.count", no_sample, "no sample of the host"),
    ("dev.uvm-open", hang("open_device"), "no answer within"),
    ("cuda.init", hang("child"), "no answer within"),
    (
        "gpu.recovery",
        answer(5, "nvmlDeviceGetFieldValues", [{"fieldId": 230, "nvmlReturn": 4}]),
        "GPU 5: no permission",
    ),
    ("gpu.ecc-errors", blind("nvmlDeviceGetTotalEccErrors[1,0]"), "GPU 5: no permission"),
    ("gpu.row-remap", blind("nvmlDeviceGetRemappedRows"), "GPU 5: no permission"),
    ("gpu.slowdown", blind("nvmlDeviceGetCurrentClocksEventReasons"), "GPU 5: no permission"),
    (
        "gpu.xid",
        program("dmesg", Ran(1, "", "dmesg: read kernel buffer failed: Operation not permitted", 0)),
        "cannot be",
    ),
    ("gpu.xid", program("dmesg", Ran(0, "", "", 0)), "nothing is known of Xids"),
    ("gpu.xid", program("dmesg", None), "cannot be read here"),
    ("gpu.idle", blind("nvmlDeviceGetUtilizationRates"), "GPU 5: no permission"),
    ("gpu.memory-free", blind("nvmlDeviceGetMemoryInfo_v2"), "GPU 5: no permission"),
    ("gpu.foreign-process", blind("nvmlDeviceGetComputeRunningProcesses_v3"), "GPU 5: no permission"),
    ("gpu.foreign-process", nvml({5: HELD}), "held by no process that the driver shows here: GPU 5 71.0 GiB"),
    ("unit.on-needed-gpu", program("systemctl", Ran(1, "", "not been booted with systemd", 0.0)), "with systemd"),
    ("proc.stuck", child("processes", "no /proc", 1), "the child ended with 1"),
    ("proc.leftovers", child("processes", "", None), "something there hangs"),
    ("gpu.mig", blind("nvmlDeviceGetMigMode"), "GPU 5: no permission"),
    ("gpu.compute-mode", blind("nvmlDeviceGetComputeMode"), "GPU 5: no permission"),
    ("gpu.ecc-mode", blind("nvmlDeviceGetEccMode"), "GPU 5: no permission"),
    ("gpu.power-limit", blind("nvmlDeviceGetEnforcedPowerLimit"), "GPU 5: no permission"),
    ("gpu.memory-size", blind("nvmlDeviceGetMemoryInfo_v2"), "not known of GPU 5"),
    ("gpu.same-firmware", blind("nvmlDeviceGetVbiosVersion"), "GPU 5: no permission"),
    ("gpu.bar", blind("nvmlDeviceGetBAR1MemoryInfo"), "GPU 5: no permission"),
    ("driver.persistence", blind("nvmlDeviceGetPersistenceMode"), "GPU 5: no permission"),
    ("port.free", hang("port_use"), "no answer within"),
    ("model.complete", planned(model="Qwen/Qwen3.6-27B"), "a name on a hub"),
    ("model.complete", hang("read_bytes"), "no answer within"),
    ("model.manifest", manifest_damaged, "not a manifest"),
    ("memory.room", file("/proc/meminfo", None), "neither the control group nor"),
    ("shm.room", hang("disk_room"), "no answer within"),
    ("shm.leftovers", shm_gone, "could not be looked at"),
    ("memory.swap", file("/proc/vmstat", None), "does not count"),
    ("engine.flags", program("/opt/serving/bin/python", Ran(None, "", "", 90.0)), "its help did not come within 90 s"),
    ("engine.attention-backend", blind("nvmlDeviceGetCudaComputeCapability"), "compute capability is not known"),
    ("engine.attention-backend", backend("fa4"), "nothing is known about it on SM120"),
    ("nccl.env", hang("read_text"), "no answer within"),
    ("pcie.slot", blind("nvmlDeviceGetMaxPcieLinkGeneration"), "GPU 5: no permission"),
    ("p2p.status", nvml(pairs=BLIND_PEERS), "no permission"),
    ("pcie.iommu", hang("read_text"), "no answer within"),
    ("pcie.aspm", hang("read_text"), "no answer within"),
    ("numa.known", across, "GPU 4: NVML names 2 nodes"),
    ("numa.cpus", file("/proc/self/status", b"Name: python\n"), "no Cpus_allowed_list"),
    ("numa.binding", child("bind", "cannot import", 1), "the child that tries it ended with 1"),
    ("numa.balancing", hang("read_text"), "no answer within"),
    ("placement.numa", across, "the node is not known of GPU 4"),
    ("profile.cards", recorded(nvml({5: {"nvmlDeviceGetUUID": NOT_TOLD}})), "GPU 5 does not tell its UUID"),
    ("profile.settings", recorded(no_sample), "no sample of the host"),
    ("profile.topology", recorded(nvml(pairs=[])), "are not known now"),
    ("profile.build", recorded(known(build=None)), "does not tell its build now"),
    ("engine.smoke", known(build=None), "does not tell its build"),
    ("load.torch", known(load=None), "no load was put on any GPU"),
    ("load.torch", under_load(torch={"kernels": []}), "does not tell what it has kernels for"),
    ("load.errors", under_load(after=None), "neither driver nor kernel counted errors of GPU 4, 5, 6, 7"),
    ("load.all-reduce", under_load(collectives={GPUS: {}}), "GPU 4, 5, 6, 7: no usable figure"),
    ("load.answers", known(load=None), "no load was put on any GPU"),
    ("load.answers", under_load(products={5: {"tflops": float("nan"), "exact": True}}), "no usable figure of GPU 5"),
    ("load.link", under_load(samples=()), "the link of GPU 4, 5, 6, 7 was not told"),
    ("load.link", under_load(busy=(6,)), "GPU 6 is used by somebody and was left alone"),
    ("load.copies", under_load(copies={5: {"to_gpu": 0.0, "from_gpu": 50.0}}), "no usable figure of GPU 5"),
    ("load.clocks", under_load(samples=()), "the clock of GPU 4 was not told"),
    ("load.peers", under_load(peers={(4, 5): {"rate": float("inf"), "exact": True}}), "no usable figure"),
    ("load.peers", under_load(problem="no torch in the serving environment"), "no torch"),
    ("cpu.quota", file("/sys/fs/cgroup/cpu.max", b"what\n"), "says 'what'"),
    ("cpu.governor", hang("list_folder"), "no answer within"),
    ("host.pressure", hang("read_text"), "no answer within"),
    ("host.limits", child("limits", "", None), "the child ended with None"),
)
"""Not measured is never green."""

ONLY_WARNS = frozenset({
    "agent.survives", "proc.leftovers", "gpu.same-firmware", "gpu.bar", "driver.persistence", "shm.leftovers",
    "memory.swap", "p2p.status", "pcie.iommu", "pcie.aspm", "numa.balancing", "placement.numa", "cpu.quota",
    "cpu.governor", "host.pressure", "profile.settings", "profile.build", "engine.smoke",
})  # fmt: skip
"""What they find costs speed, comfort or comparability, never a result: they hold nothing back."""

NEVER_UNKNOWN = frozenset({"plan.baseline", "cuda.env"})
"""They look at the plan and at this process's environment: everything they need is there."""
