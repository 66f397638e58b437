"""A healthy synthetic host and plan; each test breaks one thing."""

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.host_state import HostState
from ddconsole.core.sweep import Deployment, Placement, Speculative
from ddconsole.engines.register import engine
from ddconsole.preflight.checks.driver_match import MODULE_FILE
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import DisplacedUnit, Facts, PreflightPlan
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler

NVML = Path(__file__).parents[1] / "fixtures/nvml"
MODEL = "/dev/shm/Qwen3.6-27B"
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
def synthetic_host(tmp_path: Path) -> Callable[..., HostState]:
    """Eight GPUs on two nodes, made from the recorded H200; `gpus` and `everywhere` change answers of NVML."""

    def make(gpus: dict[int, dict[str, Any]] | None = None, **everywhere: Any) -> HostState:
        recording = json.loads((NVML / "h200x2.json").read_text())
        model = recording["devices"][0]
        model["nvmlDeviceGetName"] = {"value": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}
        model["nvmlDeviceGetCudaComputeCapability"] = {"value": [12, 0]}
        devices = [copy.deepcopy(model) for _ in range(8)]
        for index, device in enumerate(devices):
            device["nvmlDeviceGetUUID"] = {"value": f"GPU-synthetic-{index}"}
            device["nvmlDeviceGetPciInfo_v3"] = {"value": {"busId": f"00000000:{index + 16:02X}:00.0"}}
            device["nvmlDeviceGetMemoryAffinity"] = {"value": [1 << (index // 4)]}
            device.update((gpus or {}).get(index, {}))
        synthetic = recording | {"devices": devices, "pairs": [], "nvmlDeviceGetCount": {"value": 8}} | everywhere
        for node in (0, 1):
            folder = tmp_path / f"sys/devices/system/node/node{node}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpulist").write_text(f"{node * 64}-{node * 64 + 63}\n")
        return HostSampler(RecordedNvml(synthetic), lambda: 5.0, tmp_path).sample()

    return make


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
    return RecordedMachine(
        files={
            MODULE_FILE: recorded["proc/driver/nvidia/version"].encode(),
            "/proc/devices": b"Character devices:\n  1 mem\n195 nvidia\n238 nvidia-uvm\n",
            f"{MODEL}/config.json": json.dumps({"text_config": {"layer_types": ["linear_attention"]}}).encode(),
            f"{MODEL}/model.safetensors.index.json": json.dumps(index).encode(),
            f"{MODEL}/model-00001-of-00002.safetensors": safetensors(64),
            f"{MODEL}/model-00002-of-00002.safetensors": safetensors(32),
            f"{DRAFT}/config.json": b"{}",
            f"{DRAFT}/model.safetensors": safetensors(16),
        },
        devices={DEVICE: RecordedDevice()},
        programs={
            "true": Ran(0, "", "", 0.01),
            "systemctl": Ran(
                0, "LoadState=loaded\nActiveState=inactive\nSubState=dead\nTriggeredBy=\nMainPID=0\n", "", 0
            ),
            "/opt/serving/bin/python": Ran(0, HELP, "", 4.0),
        },
        children={
            "libraries": Ran(0, json.dumps(libraries), "", 0.1),
            "cuda": Ran(0, json.dumps(cuda), "", 0.4),
        },
    )


@pytest.fixture
def facts(machine: RecordedMachine, synthetic_host: Callable[..., HostState]) -> Facts:
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
        ),
        machine=machine,
        host=synthetic_host(),
        engine=engine("sglang"),
    )
