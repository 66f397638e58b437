"""The simulated host behind `Machine`: its driver, devices, memory, units and models are made up; programs are real."""

import json
from collections.abc import Mapping, Sequence

from ddconsole.core.host_state import HostState
from ddconsole.preflight.checks.driver_match import MODULE_FILE
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import DeviceOpening, DiskRoom, FileStatus, Ran
from ddconsole.preflight.recorded_machine import NVIDIA_MAJOR, NVIDIA_UVM_MAJOR, RecordedMachine

_CONFIG = {"model_type": "simulated", "layer_types": ["linear_attention", "full_attention"]}
"""What attention backends depend on: the plan of the rehearsal means a model with recurrent layers."""
_SIMULATED = ("/sys/", "/proc/", "/etc/nccl.conf")
"""Where nothing of the real machine is looked at: what is not made up there does not exist."""
_SHM = "/dev/shm"  # noqa: S108  # asked about, never written
_ROOM = 64 * 1024**3


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
        total, free = (host.memory_total.value or 0) // 1024, (host.memory_available.value or 0) // 1024
        self._made_up = RecordedMachine(
            files={
                MODULE_FILE: f"NVRM version: simulated  {self._driver}  Release Build".encode(),
                "/proc/devices": f"{NVIDIA_MAJOR} nvidia\n{NVIDIA_UVM_MAJOR} nvidia-uvm\n".encode(),
                "/proc/meminfo": f"MemTotal: {total} kB\nMemAvailable: {free} kB\nShmem: 0 kB\n".encode(),
                "/proc/vmstat": b"pswpin 0\npswpout 0\n",
                "/proc/mounts": f"tmpfs {_SHM} tmpfs rw 0 0\n".encode(),
                "/proc/self/status": f"Cpus_allowed_list:\t0-{max((host.cpu_count.value or 1) - 1, 0)}\n".encode(),
                **{path: data for model in models for path, data in _model_files(model).items()},
            }
        )

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        """Answer for systemctl and dmesg; everything else runs."""
        if argv[0] == "dmesg":
            return Ran(0, "[    0.000000] simulated\n", "", 0.0)
        if argv[0] != "systemctl":
            return await super().run(argv, deadline, environment)
        active = argv[-1] in self._units
        out = f"LoadState=loaded\nActiveState={'active' if active else 'inactive'}\nSubState=simulated\nTriggeredBy=\n"
        return Ran(0, out, "", 0.0)

    async def child(self, *arguments: str, deadline: float) -> Ran:
        """The simulated driver works; limits are this machine's."""
        answers = {
            "libraries": {
                name: {"file": f"/simulated/{name.removesuffix('.1')}.{self._driver}", "error": None}
                for name in ("libcuda.so.1", "libnvidia-ml.so.1")
            },
            "cuda": {"library": "simulated", "init": 0, "name": "CUDA_SUCCESS", "count": self._gpus},
            "bind": None,
            "processes": {"looked": 0, "stuck": [], "servers": []},
        }
        if arguments[0] not in answers:
            return await super().child(*arguments, deadline=deadline)
        return Ran(0, json.dumps(answers[arguments[0]]), "", 0.0)

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:  # noqa: ARG002  # nothing is opened
        """It opens."""
        return DeviceOpening(None)

    async def status(self, path: str) -> FileStatus | None:
        """The simulated devices and models, else what is there."""
        if path.startswith("/dev/nvidia"):
            major = NVIDIA_UVM_MAJOR if "uvm" in path else NVIDIA_MAJOR
            return FileStatus("character", 0, major, 0o666)
        if path.startswith(_SIMULATED):
            return await self._made_up.status(path)
        return await super().status(path) or await self._made_up.status(path)

    async def read_text(self, path: str) -> str:
        """A simulated file, else what is there."""
        if path.startswith(_SIMULATED) or await super().status(path) is None:
            return await self._made_up.read_text(path)
        return await super().read_text(path)

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:
        """What is there, else a simulated file."""
        if await super().status(path) is None:
            return await self._made_up.read_bytes(path, offset, length)
        return await super().read_bytes(path, offset, length)

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """What is there, else a simulated folder."""
        if path.startswith(_SIMULATED) or await super().status(path) is None:
            return await self._made_up.list_folder(path)
        return () if path == _SHM else await super().list_folder(path)

    async def disk_room(self, path: str) -> DiskRoom:
        """What is there; shared memory is the simulated host's."""
        if path == _SHM:
            return DiskRoom(_SHM, _ROOM, None, writable=True)
        return await super().disk_room(path)


def _model_files(path: str) -> dict[str, bytes]:
    header = json.dumps({"simulated": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    folder = path.rstrip("/")
    return {
        f"{folder}/config.json": json.dumps(_CONFIG).encode(),
        f"{folder}/model.safetensors": len(header).to_bytes(8, "little") + header + b"\0\0",
    }
