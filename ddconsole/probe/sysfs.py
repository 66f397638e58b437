"""NUMA nodes, CPUs and PCI links as the kernel tells them. `root` is `/`, or a recorded tree."""

import re
from pathlib import Path

from ddconsole.core.host_state import NumaNode
from ddconsole.core.readings import Reading, read, unavailable

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generation by GT/s of one lane."""


def numa_nodes(root: Path, gpus_of_node: dict[int, tuple[int, ...]], at: float) -> tuple[NumaNode, ...]:
    """All nodes, also one that only a GPU names. A kernel without NUMA has none."""
    folder = root / "sys/devices/system/node"
    known = {int(path.name[4:]) for path in folder.glob("node[0-9]*") if path.name[4:].isdigit()}
    return tuple(_node(folder, index, gpus_of_node.get(index, ()), at) for index in sorted(known | set(gpus_of_node)))


def pci_numa_node(root: Path, address: str, at: float) -> Reading[int]:
    """The node of a PCI device; the kernel's -1 means that it does not know."""
    path = _pci(root, address) / "numa_node"
    number = _text(path, at).map(int)
    if number.value is not None and number.value < 0:
        return unavailable("the kernel does not know the node (-1)", at, str(path))
    return number


def pci_link(root: Path, address: str, which: str, at: float) -> tuple[Reading[int], Reading[int]]:
    """Generation and width of a PCI device's link. `which` is `current` or `max`."""
    folder = _pci(root, address)
    speed = _text(folder / f"{which}_link_speed", at)
    generation = _GENERATIONS.get(_first_number(speed.value or ""))
    width = _text(folder / f"{which}_link_width", at)
    lanes = _first_number(width.value or "")
    return (
        _number(speed, generation),
        _number(width, int(lanes) or None),
    )


def pci_cpus(root: Path, address: str, at: float) -> Reading[str]:
    """CPUs near a PCI device, in the kernel's list notation."""
    return _text(_pci(root, address) / "local_cpulist", at)


def pci_link_errors(root: Path, address: str, at: float) -> tuple[Reading[int], Reading[int]]:
    """Link errors since the start that were corrected, and that were not. Virtual machines do not tell."""
    folder = _pci(root, address)
    corrected = _total(folder / "aer_dev_correctable", at)
    lost = [_total(folder / name, at) for name in ("aer_dev_nonfatal", "aer_dev_fatal")]
    if any(not one.known for one in lost):
        return corrected, lost[0] if not lost[0].known else lost[1]
    return corrected, read(sum(one.require() for one in lost), at, str(folder / "aer_dev_fatal"))


def _total(path: Path, at: float) -> Reading[int]:
    text = _text(path, at)
    match = re.search(r"TOTAL_ERR_\w+ (\d+)", text.value or "")
    return _number(text, int(match[1]) if match else None)


def _distances(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


def _node(folder: Path, index: int, gpus: tuple[int, ...], at: float) -> NumaNode:
    memory = _text(folder / f"node{index}/meminfo", at)
    return NumaNode(
        index=index,
        cpus=_text(folder / f"node{index}/cpulist", at, empty="no CPUs on this node"),
        memory_total=_number(memory, _kilobytes(memory, "MemTotal")),
        memory_free=_number(memory, _available(memory)),
        gpus=gpus,
        distances=_text(folder / f"node{index}/distance", at).map(_distances),
    )


def _pci(root: Path, address: str) -> Path:
    return root / "sys/bus/pci/devices" / address


def _text(path: Path, at: float, empty: str = "empty") -> Reading[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as problem:
        return unavailable(problem.strerror or str(problem), at, str(path))
    return read(text, at, str(path)) if text else unavailable(empty, at, str(path))


def _number(source: Reading[str], number: int | None) -> Reading[int]:
    if number is not None:
        return read(number, source.at, source.source)
    reason = source.unavailable or f"says {source.require()[:40]!r}"
    return unavailable(reason, source.at, source.source)


def _available(memory: Reading[str]) -> int | None:
    """A node has no MemAvailable: what is free, and what the kernel can drop at once, which is the most of it."""
    free = _kilobytes(memory, "MemFree")
    if free is None:
        return None
    return free + sum(_kilobytes(memory, name) or 0 for name in ("Active(file)", "Inactive(file)", "SReclaimable"))


def _kilobytes(memory: Reading[str], name: str) -> int | None:
    match = re.search(rf"\b{re.escape(name)}:\s+(\d+) kB", memory.value or "")
    return int(match[1]) * 1024 if match else None


def _first_number(text: str) -> float:
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else 0.0
