"""Following a log file that another process writes."""

from pathlib import Path

_PIECE = 256 * 1024
_LONGEST = 64 * 1024
"""Bytes of one line that are looked at; the rest of a longer line is passed over."""


class LogTail:
    """Lines of a growing file, as they become complete."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        """Bytes read so far."""
        self._rest = b""

    def read(self) -> list[str]:
        """The lines that came since the last call, at most 256 KiB of them; carriage returns are still in them."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(_PIECE)
        except FileNotFoundError:
            return []
        self.offset += len(data)
        if len(self._rest) + len(data) > _LONGEST and b"\n" not in data:
            self._rest = (self._rest + data)[:_LONGEST]
            return []
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return [line[:_LONGEST].decode(errors="replace") for line in lines]

    def read_partial_line(self) -> None:
        """Pass over the rest of a line that the offset fell into."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            self.offset += len(file.readline())

    def read_all(self) -> list[str]:
        """Everything up to the end of the file, an unfinished last line included."""
        lines: list[str] = []
        while True:
            before = self.offset
            lines += self.read()
            if self.offset == before:
                break
        if self._rest:
            lines.append(self._rest.decode(errors="replace"))
            self._rest = b""
        return lines


def last_lines(path: Path, number: int, window: int = 2 * 1024 * 1024) -> list[str]:
    """The last `number` lines of a file, looking at its last `window` bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - window, 0))
            data = file.read()
    except FileNotFoundError:
        return []
    return [line.decode(errors="replace") for line in data.split(b"\n") if line][-number:]
