"""What became different about a machine between two samples, where it decides whether measurements compare."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.host_state import GpuState, HostState
from ddconsole.core.readings import Reading

_OF_THE_HOST = {"kernel": "kernel", "driver": "driver", "cuda_driver": "CUDA of the driver"}
_OF_A_GPU = {
    "power_limit": "power limit in W",
    "persistence": "persistence mode",
    "mig": "MIG",
    "sm_clock_set": "application clock in MHz",
    "sm_clock_max": "highest clock in MHz",
    "pcie_generation_max": "PCIe generation",
    "pcie_width_max": "PCIe width",
    "memory_total": "memory in bytes",
}


def host_changes(before: HostState, after: HostState) -> tuple[str, ...]:
    """Old → new in words: kernel, driver, GPUs by their UUID, and what a boot forgets of their settings.

    What one of the samples could not tell is left out: not knowing is no change.
    """
    told = _changed(before, after, _OF_THE_HOST, "")
    old, new = _by_uuid(before), _by_uuid(after)
    if old:
        told += [f"GPU {gpu.index} ({uuid}) is gone" for uuid, gpu in old.items() if uuid not in new]
        told += [f"GPU {gpu.index} ({uuid}) is new" for uuid, gpu in new.items() if uuid not in old]
    for uuid in (one for one in old if one in new):
        if old[uuid].index != new[uuid].index:
            told.append(f"GPU {old[uuid].index} is now GPU {new[uuid].index} ({uuid})")
        told += _changed(old[uuid], new[uuid], _OF_A_GPU, f"GPU {new[uuid].index} ")
    return tuple(told)


def _by_uuid(host: HostState) -> dict[str, GpuState]:
    return {gpu.uuid.value: gpu for gpu in host.gpus if gpu.uuid.value is not None}


def _changed(before: object, after: object, fields: Mapping[str, str], whose: str) -> list[str]:
    told = []
    for name, words in fields.items():
        old: Reading[Any] = getattr(before, name)
        new: Reading[Any] = getattr(after, name)
        if old.known and new.known and old.value != new.value:
            told.append(f"{whose}{words} {_shown(old.value)} → {_shown(new.value)}")
    return told


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
