"""The simulated host behind `Machine`: its driver, devices, units and models are made up, its programs are real."""

import json
from collections.abc import Mapping, Sequence

from ddconsole.core.host_state import HostState
from ddconsole.preflight.checks.driver_match import MODULE_FILE
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import DeviceOpening, FileStatus, Ran
from ddconsole.preflight.recorded_machine import NVIDIA_UVM_MAJOR, RecordedMachine

_CONFIG = {"model_type": "simulated", "layer_types": ["linear_attention", "full_attention"]}
"""What attention backends depend on: the plan of the rehearsal means a model with recurrent layers."""


class RehearsedMachine(LocalMachine):
    """As `LocalMachine`, but for what only the simulated host has.

    Args:
        host: the simulated host's sample.
        models: paths of models and drafts; those that are not on this machine are made up, whole.
        active_units: systemd units that run there.
    """

    def __init__(self, host: HostState, models: Sequence[str] = (), active_units: Sequence[str] = ()) -> None:
        self._driver = host.driver.value or ""
        self._gpus = host.gpu_count.value or 0
        self._units = frozenset(active_units)
        self._made_up = RecordedMachine(
            files={
                MODULE_FILE: f"NVRM version: simulated  {self._driver}  Release Build".encode(),
                "/proc/devices": f"{NVIDIA_UVM_MAJOR} nvidia-uvm\n".encode(),
                **{path: data for model in models for path, data in _model_files(model).items()},
            }
        )

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        """Answer for systemctl; everything else runs."""
        if argv[0] != "systemctl":
            return await super().run(argv, deadline, environment)
        active = argv[-1] in self._units
        out = f"LoadState=loaded\nActiveState={'active' if active else 'inactive'}\nSubState=simulated\nTriggeredBy=\n"
        return Ran(0, out, "", 0.0)

    async def child(self, *arguments: str, deadline: float) -> Ran:  # noqa: ARG002  # nothing is started
        """The simulated driver works."""
        answers = {
            "libraries": {
                name: {"file": f"/simulated/{name.removesuffix('.1')}.{self._driver}", "error": None}
                for name in ("libcuda.so.1", "libnvidia-ml.so.1")
            },
            "cuda": {"library": "simulated", "init": 0, "name": "CUDA_SUCCESS", "count": self._gpus},
        }
        return Ran(0, json.dumps(answers[arguments[0]]), "", 0.0)

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:  # noqa: ARG002  # nothing is opened
        """It opens."""
        return DeviceOpening(None)

    async def status(self, path: str) -> FileStatus | None:
        """The simulated device and models, else what is there."""
        if path == DEVICE:
            return FileStatus("character", 0, NVIDIA_UVM_MAJOR, 0o666)
        return await super().status(path) or await self._made_up.status(path)

    async def read_text(self, path: str) -> str:
        """A simulated file, else what is there."""
        if path in {MODULE_FILE, "/proc/devices"} or await super().status(path) is None:
            return await self._made_up.read_text(path)
        return await super().read_text(path)

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:
        """What is there, else a simulated file."""
        if await super().status(path) is None:
            return await self._made_up.read_bytes(path, offset, length)
        return await super().read_bytes(path, offset, length)

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """What is there, else a simulated folder."""
        if await super().status(path) is None:
            return await self._made_up.list_folder(path)
        return await super().list_folder(path)


def _model_files(path: str) -> dict[str, bytes]:
    header = json.dumps({"simulated": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    folder = path.rstrip("/")
    return {
        f"{folder}/config.json": json.dumps(_CONFIG).encode(),
        f"{folder}/model.safetensors": len(header).to_bytes(8, "little") + header + b"\0\0",
    }
