"""A machine made of plain values: recorded, synthetic, or rehearsed. Nothing of the real one is touched."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ddconsole.preflight.machine import DeviceOpening, DiskRoom, FileStatus, PortUse, Ran

NVIDIA_UVM_MAJOR = 238
NVIDIA_MAJOR = 195
"""The driver's own: fixed; the other is given out when its module is loaded."""


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """What stands under a device's path, and what opening it gives."""

    error: str | None = None
    kind: str = "character"
    major: int = NVIDIA_UVM_MAJOR
    mode: int = 0o666


@dataclass
class RecordedMachine:
    """`Machine` from values. What is not there is not found; what is in `hangs` never answers."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Path to content. Folders follow from the paths."""
    folders: set[str] = field(default_factory=set)
    """Folders with nothing in them."""
    changing: dict[str, Iterator[bytes]] = field(default_factory=dict)
    """Files that say something else each time they are read as text."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes of files of which only the beginning is in `files`."""
    devices: dict[str, RecordedDevice] = field(default_factory=dict)
    programs: dict[str, Ran] = field(default_factory=dict)
    """What programs print, by their command line joined with blanks, or by its first word."""
    children: dict[str, Ran] = field(default_factory=dict)
    """What the driver's child prints, by its first argument."""
    room: DiskRoom = field(default_factory=lambda: DiskRoom("/", 500 * 1024**3, 10_000_000, writable=True))
    rooms: dict[str, DiskRoom] = field(default_factory=dict)
    """Of single paths."""
    ports: dict[int, PortUse] = field(default_factory=dict)
    """Ports that are taken."""
    hangs: set[str] = field(default_factory=set)
    """Names of methods, paths, or first words of command lines."""
    ran: list[tuple[str, ...]] = field(default_factory=list)
    """The command lines that were asked for."""

    async def run(
        self,
        argv: Sequence[str],
        deadline: float,  # noqa: ARG002  # the real machine's
        environment: Mapping[str, str] | None = None,  # noqa: ARG002  # the real machine's
    ) -> Ran:
        """The recorded output."""
        await self._hang("run", argv[0])
        self.ran.append(tuple(argv))
        for key in (" ".join(argv), argv[0]):
            if key in self.programs:
                return self.programs[key]
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    async def child(self, *arguments: str, deadline: float) -> Ran:  # noqa: ARG002  # the real machine's
        """The recorded output."""
        await self._hang("child", arguments[0])
        if arguments[0] not in self.children:
            raise FileNotFoundError(2, "not recorded", arguments[0])
        return self.children[arguments[0]]

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:  # noqa: ARG002  # the real machine's
        """The recorded outcome."""
        await self._hang("open_device", path)
        device = self.devices.get(path)
        return DeviceOpening("ENOENT" if device is None else device.error)

    async def status(self, path: str) -> FileStatus | None:
        """A recorded device, file or folder."""
        await self._hang("status", path)
        if path in self.devices:
            device = self.devices[path]
            return FileStatus(device.kind, 0, device.major, device.mode)
        if path in self.files:
            return FileStatus("file", self.sizes.get(path, len(self.files[path])))
        if path in self.folders or any(
            name.startswith(path.rstrip("/") + "/") for name in (*self.files, *self.devices)
        ):
            return FileStatus("folder", 0)
        return None

    async def read_text(self, path: str) -> str:
        """A recorded file."""
        await self._hang("read_text", path)
        if path in self.changing:
            return next(self.changing[path]).decode("utf-8", "replace")
        return self._content(path).decode("utf-8", "replace")

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:
        """Part of a recorded file."""
        await self._hang("read_bytes", path)
        return self._content(path)[offset : offset + length]

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """Names of recorded files and folders."""
        await self._hang("list_folder", path)
        start = path.rstrip("/") + "/"
        names = {name.removeprefix(start).partition("/")[0] for name in self.files if name.startswith(start)}
        if not names and path not in self.folders:
            raise FileNotFoundError(2, "No such file or directory", path)
        return tuple(sorted(names))

    async def disk_room(self, path: str) -> DiskRoom:
        """As recorded, the same for every path that is not named."""
        await self._hang("disk_room", path)
        return self.rooms.get(path, self.room)

    async def port_use(self, port: int) -> PortUse:
        """Free, unless it is recorded as taken."""
        await self._hang("port_use", str(port))
        return self.ports.get(port, PortUse(free=True))

    def _content(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path]

    async def _hang(self, *names: str) -> None:
        if self.hangs.intersection(names):
            await asyncio.Event().wait()
