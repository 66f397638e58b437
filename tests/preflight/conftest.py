"""A healthy synthetic host and plan; each test breaks one thing."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from synthetic_host import NVML, SyntheticHost
from under_load import loaded

from ddconsole.core.sweep import Deployment, Placement, Speculative
from ddconsole.engines.register import engine
from ddconsole.preflight.checks.driver_match import MODULE_FILE
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import DisplacedUnit, Facts, PreflightPlan, Reach
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.manifest import Manifest, ManifestFile, manifest_file, manifest_to_json, sample_hash
from ddconsole.preflight.recorded_machine import NVIDIA_MAJOR, RecordedDevice, RecordedMachine

AT_REST = b"some avg10=0.00 avg60=0.10 avg300=9.0 total=1\nfull avg10=0 avg60=0.00 avg300=0 total=0\n"
MODEL = "/dev/shm/Qwen3.6-27B"
MANIFESTS = "/var/lib/ddconsole/runs/.manifests"
DRAFT = "/dev/shm/Qwen3.6-27B-DFlash"
HELP = (
    "usage: launch_server.py [-h] [--model-path MODEL_PATH] [--served-model-name NAME] [--host HOST] [--port PORT]\n"
    "options:\n" + "\n".join(
        f"  --{name} VALUE"
        for name in (
            "model-path", "served-model-name", "host", "port", "tensor-parallel-size", "tp-size", "attention-backend",
            "max-running-requests", "speculative-algorithm", "speculative-draft-model-path",
            "speculative-num-draft-tokens", "speculative-dflash-block-size", "enable-metrics", "context-length",
            "base-gpu-id", "random-seed", "speculative-ddtree-budget", "log-level", "log-level-http",
            "enable-cache-report", "trust-remote-code", "device", "decode-log-interval", "nccl-port",
        )
    )
)  # fmt: skip


def safetensors(size: int) -> bytes:
    """A file with one tensor of `size` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * size


def deployment(identity: str, method: str, gpus: tuple[int, ...], **args: Any) -> Deployment:
    speculative = None if method == "ar" else Speculative(kind="dflash", block_size=16)
    return Deployment(
        id=identity,
        method=method,
        tensor_parallel=len(gpus),
        size=4,
        args={"attention-backend": "triton", **args},
        env={},
        placement=Placement(gpus, "numa"),
        speculative=speculative,
    )


@pytest.fixture
def synthetic_host(tmp_path: Path) -> SyntheticHost:
    """Eight GPUs on two nodes, made from the recorded H200; `gpus` and `everywhere` change answers of NVML."""
    return SyntheticHost(tmp_path)


def with_manifest(machine: RecordedMachine) -> RecordedMachine:
    """The model was staged, and is what it was."""
    files = {
        path.removeprefix(f"{MODEL}/"): ManifestFile(len(data), sample_hash([data]))
        for path, data in machine.files.items()
        if path.startswith(f"{MODEL}/")
    }
    manifest = Manifest(MODEL, 1.0, "another boot", files)
    machine.files[manifest_file(MANIFESTS, MODEL)] = json.dumps(manifest_to_json(manifest)).encode()
    return machine


@pytest.fixture
def machine() -> RecordedMachine:
    """Everything as it should be, driver and devices as on the recorded machine."""
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    recorded = json.loads((NVML / "h200x2-files.json").read_text())
    libraries = {
        name: {"file": f"/usr/lib/x86_64-linux-gnu/{name.removesuffix('.1')}.580.159.04", "error": None}
        for name in ("libcuda.so.1", "libnvidia-ml.so.1")
    }
    cuda = {"library": "/usr/lib/libcuda.so.580.159.04", "init": 0, "name": "CUDA_SUCCESS", "count": 8}
    return with_manifest(recorded_machine(recorded, index, libraries, cuda))


def recorded_machine(recorded: Any, index: Any, libraries: Any, cuda: Any) -> RecordedMachine:
    return RecordedMachine(
        files={
            MODULE_FILE: recorded["proc/driver/nvidia/version"].encode(),
            "/proc/1/comm": b"systemd\n",
            "/run/systemd/system/.keep": b"",
            "/var/lib/systemd/linger/bench": b"",
            "/proc/devices": b"Character devices:\n  1 mem\n195 nvidia\n238 nvidia-uvm\n",
            "/proc/meminfo": b"MemTotal: 515838000 kB\nMemAvailable: 400000000 kB\nShmem: 60000000 kB\n",
            "/proc/mounts": b"rpool/ct200 / zfs rw 0 0\ntmpfs /dev/shm tmpfs rw,size=257919000k 0 0\n",
            "/proc/vmstat": b"nr_free_pages 7\npswpin 40\npswpout 2\n",
            "/proc/self/status": b"Name:\tpython\nCpus_allowed_list:\t0-127\n",
            "/proc/self/cgroup": b"0::/ns\n",
            "/proc/sys/kernel/numa_balancing": b"0\n",
            "/sys/fs/cgroup/ns/memory.max": b"max\n",
            "/sys/fs/cgroup/cpu.max": b"max 100000\n",
            "/sys/module/pcie_aspm/parameters/policy": b"[default] performance powersave powersupersave\n",
            **{
                f"/sys/bus/pci/devices/0000:{index + 16:02x}:00.0/iommu_group/type": b"identity\n" for index in range(8)
            },
            **{
                f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}": word
                for cpu in (0, 127)
                for name, word in (("scaling_governor", b"performance\n"), ("scaling_driver", b"acpi-cpufreq\n"))
            },
            **{f"/proc/pressure/{name}": AT_REST for name in ("cpu", "memory", "io")},
            "/dev/shm/sem.x": b"1234",
            f"{MODEL}/config.json": json.dumps({"text_config": {"layer_types": ["linear_attention"]}}).encode(),
            f"{MODEL}/model.safetensors.index.json": json.dumps(index).encode(),
            f"{MODEL}/model-00001-of-00002.safetensors": safetensors(64),
            f"{MODEL}/model-00002-of-00002.safetensors": safetensors(32),
            f"{DRAFT}/config.json": b"{}",
            f"{DRAFT}/model.safetensors": safetensors(16),
        },
        devices={
            DEVICE: RecordedDevice(),
            "/dev/nvidiactl": RecordedDevice(major=NVIDIA_MAJOR),
            **{f"/dev/nvidia{index}": RecordedDevice(major=NVIDIA_MAJOR) for index in range(8)},
        },
        programs={
            "true": Ran(0, "", "", 0.01),
            "sleep": Ran(0, "", "", 0.01),
            "dmesg": Ran(0, "[    0.0] Linux version 6.14.11\n[   12.3] NVRM: loading\n", "", 0.01),
            "id": Ran(0, "uid=1000(bench) gid=1000(bench) groups=1000(bench)\n", "", 0.01),
            "loginctl": Ran(0, "KillUserProcesses=yes\nKillOnlyUsers=\nKillExcludeUsers=root\n", "", 0.01),
            "systemctl": Ran(
                0, "LoadState=loaded\nActiveState=inactive\nSubState=dead\nTriggeredBy=\nMainPID=0\n", "", 0
            ),
            "/opt/serving/bin/python": Ran(0, HELP, "", 4.0),
        },
        children={
            "libraries": Ran(0, json.dumps(libraries), "", 0.1),
            "cuda": Ran(0, json.dumps(cuda), "", 0.4),
            "bind": Ran(0, "null\n", "", 0.1),
            "limits": Ran(0, json.dumps({"files": 1048576, "locked memory": -1, "cores": 0}), "", 0.1),
            "processes": Ran(0, json.dumps({"looked": 40, "stuck": [], "servers": []}), "", 0.1),
        },
    )


BUILD = {"engine": "sglang", "version": "0.5.9", "commit": "abc1234", "changes": None}
SMOKE = tuple({"build": "0.5.9 abc1234", "how": how, "run": "r0"} for how in ("plain", "dflash"))


@pytest.fixture
def facts(machine: RecordedMachine, synthetic_host: SyntheticHost) -> Facts:
    return Facts(
        plan=PreflightPlan(
            run_directory="/var/lib/ddconsole/runs/r1",
            deployments=(
                deployment("d01", "ar", (4, 5, 6, 7)),
                deployment("d02", "dflash", (4, 5, 6, 7)),
            ),
            engine_command=("/opt/serving/bin/python", "-m", "sglang.launch_server"),
            model=MODEL,
            draft=DRAFT,
            model_source="/data/models",
            baseline="ar",
            expected_gpus=8,
            expected_gpu_name="RTX PRO 6000",
            ports=(30000,),
            displaced=(DisplacedUnit("ddtree-gpu4.service", 4),),
            manifests=MANIFESTS,
            bind_numa=True,
            expected_link=(5, 16),
            expected_nodes=2,
            engine_env={"NCCL_P2P_LEVEL": "SYS"},
        ),
        machine=machine,
        host=synthetic_host(),
        inventory=synthetic_host.inventory(),
        build=BUILD,
        load=loaded(synthetic_host),
        smoke=SMOKE,
        environment={"HOME": "/root", "PATH": "/usr/bin"},
        engine=engine("sglang"),
        reach=Reach("ssh ct200", round_trip=0.02, clock_offset=0.03),
    )
