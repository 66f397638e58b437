"""What the driver says of each GPU when asked seldom: settings, health, counters; and how fast it answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddconsole.core.readings import Reading, unavailable


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """One GPU: what the fast sample leaves out. A reading that the card lacks is not available with NVML 3 or 13."""

    index: int
    uuid: Reading[str]
    pci_address: Reading[str]
    minor: Reading[int]
    """N of /dev/nvidiaN; it need not be the index."""
    vbios: Reading[str]
    firmware: Reading[str]
    """Of the GPU's system processor (GSP)."""
    persistence: Reading[bool]
    compute_mode: Reading[int]
    """0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process."""
    mig: Reading[tuple[int, int]]
    """Multi-instance mode, now and after the next reset."""
    ecc: Reading[tuple[int, int]]
    """Error correction, now and after the next reset."""
    ecc_uncorrected: Reading[int]
    """Uncorrectable memory errors since the driver was loaded."""
    rows: Reading[tuple[int, int, int, int]]
    """Remapped rows: for corrected errors, for uncorrected ones, whether one is pending, whether one failed."""
    recovery: Reading[int]
    """What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset."""
    power_limit_default: Reading[float]
    """Watts."""
    power_limit_set: Reading[float]
    """Watts that were asked for; the one that is enforced stands in the sample."""
    bar1: Reading[int]
    """Bytes of the window through which others reach its memory."""
    memory_clock_max: Reading[int]
    """MHz."""
    replays: Reading[int]
    """PCIe packets sent again since the driver was loaded."""
    hot: Reading[int]
    """Nanoseconds in which heat slowed it (hardware), since the driver was loaded."""
    braked: Reading[int]
    """Nanoseconds in which the power brake slowed it, since the driver was loaded."""
    seconds: float
    """The slowest call."""
    slowest: str
    """Its name."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs that answered, and who did not."""

    gpus: tuple[GpuInventory, ...] = ()
    problem: str = ""
    """Why there are none at all."""
    silent: str = ""
    """`GPU 3, nvmlDeviceGetEccMode`: what was asked when the time was up."""
    silent_for: float = 0.0
    """Seconds without an answer then."""
    seconds: float = 0.0
    """For all of it."""

    def gpu(self, index: int) -> GpuInventory | None:
        """The GPU with this index, or None."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


def is_not_supported(reading: Reading[Any]) -> bool:
    """Whether the card or its driver lacks it: no error, and no zero."""
    reason = reading.unavailable or ""
    return "(NVML 3)" in reason or "(NVML 13)" in reason


def gpu_inventory_to_json(gpu: GpuInventory) -> dict[str, Any]:
    """One GPU as JSON."""
    values = {name: getattr(gpu, name) for name in GpuInventory.__dataclass_fields__}
    return {name: _plain(value) if isinstance(value, Reading) else value for name, value in values.items()}


def gpu_inventory_from_json(data: Mapping[str, Any]) -> GpuInventory:
    """The inverse; unknown fields are ignored, missing readings are not available.

    Raises:
        ValueError: this is no inventory of a GPU.
    """
    try:
        values: dict[str, Any] = {}
        for name, about in GpuInventory.__dataclass_fields__.items():
            if "Reading" not in str(about.type):
                values[name] = data[name]
            elif name in data:
                values[name] = _reading(*data[name])
            else:
                values[name] = unavailable("not told by the sender's version", 0.0, "")
        return GpuInventory(**values)
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"not an inventory of a GPU: {type(problem).__name__} {problem}") from problem


def _plain(reading: Reading[Any]) -> list[Any]:
    return [reading.value, reading.at, reading.source, reading.unavailable]


def _reading(value: Any, at: float, source: str, reason: str | None) -> Reading[Any]:
    return Reading(tuple(value) if isinstance(value, list) else value, at, source, reason)
