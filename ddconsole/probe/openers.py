"""Which processes of this container have a GPU's device node open: the driver may number processes as the host does."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from ddconsole.core.host_state import DeviceOpener

_NODE = re.compile(r"/dev/nvidia(\d+)")
_LONGEST = 120
"""Characters of a command line that are kept."""


def device_openers(root: Path = Path("/")) -> dict[int, tuple[DeviceOpener, ...]]:
    """Openers by the number of the device node. Costs about 20 us for each process of the machine that may be read.

    Processes of other users are seen by root only.
    """
    found: dict[int, list[DeviceOpener]] = {}
    for folder in (root / "proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        minors = set(_open_nodes(folder))
        if minors:
            opener = _opener(pid)
            for minor in minors:
                found.setdefault(minor, []).append(opener)
    return {minor: tuple(sorted(openers, key=lambda one: one.pid)) for minor, openers in found.items()}


def _open_nodes(folder: Path) -> Iterator[int]:
    try:
        descriptors = os.listdir(folder / "fd")  # noqa: PTH208  # a Path for each of a hundred thousand costs as much
    except OSError:
        return
    for name in descriptors:
        try:
            node = _NODE.fullmatch(os.readlink(f"{folder}/fd/{name}"))  # noqa: PTH115  # as above
        except OSError:
            continue
        if node is not None:
            yield int(node[1])


def _opener(pid: int) -> DeviceOpener:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return DeviceOpener(pid, process.username(), " ".join(process.cmdline())[:_LONGEST] or process.name())
    except psutil.Error:
        return DeviceOpener(pid, "", "")
