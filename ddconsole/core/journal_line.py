"""One journal line: JSON with a checksum over its own bytes, so that a torn or damaged line is known.

    {"crc":"1c291ca3","epoch":1,"seq":7,"at":1796011025.5,"from":[3,12],"event":{"type":...}}

The checksum is the CRC-32 of the line's bytes after the checksum field, newline not included.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.core.events import Entry, Origin, event_from_json, event_to_json

_PREFIX = '{"crc":"'
_REST = len(_PREFIX) + 8 + 2  # eight hex digits, the closing quote and the comma


class DamagedLine(ValueError):
    """A line whose checksum or form is wrong."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a journal cannot be read."""

    line: int
    """From 1."""
    offset: int
    """Bytes before the line."""
    torn_tail: bool
    """It is the end and can be cut off: it was never acknowledged. Otherwise the file must be set aside."""
    end: int = 0
    """Bytes up to the end of the damaged line."""


def encode_line(entry: Entry) -> bytes:
    """The line of an entry, newline included.

    Raises:
        ValueError: the entry has no event, or a number that JSON does not have.
    """
    if entry.event is None:
        raise ValueError("an unknown event cannot be written")
    body: dict[str, object] = {"epoch": entry.epoch, "seq": entry.seq, "at": entry.at}
    if entry.origin is not None:
        body["from"] = [entry.origin.launch, entry.origin.n]
    if entry.more:
        body["more"] = entry.more
    body["event"] = event_to_json(entry.event)
    rest = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))[1:].encode()
    return f'{_PREFIX}{zlib.crc32(rest):08x}",'.encode() + rest + b"\n"


def decode_line(line: bytes) -> Entry:
    """The entry of a line, with or without its newline.

    Raises:
        DamagedLine: the checksum or the form is wrong.
    """
    line = line.rstrip(b"\n")
    head, rest = line[:_REST], line[_REST:]
    if head != f'{_PREFIX}{zlib.crc32(rest):08x}",'.encode():
        raise DamagedLine("checksum")
    data = json.loads(b"{" + rest)
    origin = data.get("from")
    return Entry(
        epoch=data["epoch"],
        seq=data["seq"],
        at=data["at"],
        event=event_from_json(data["event"]),
        origin=Origin(origin[0], origin[1]) if origin else None,
        more=data.get("more", 0),
    )


def checksum_of(line: bytes) -> str:
    """The eight hex digits that a good line carries."""
    return line[len(_PREFIX) : len(_PREFIX) + 8].decode("ascii", errors="replace")


def read_lines(data: bytes) -> tuple[Sequence[Entry], Damage | None]:
    """The entries of a whole file up to the first line that cannot be read, and where that is.

    Lines that were written together count together: where the last ones are missing, the first ones are torn too.
    """
    entries: list[Entry] = []
    offsets: list[int] = []
    offset = 0
    lines = data.split(b"\n")
    unfinished = lines.pop()
    damage: Damage | None = None
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(decode_line(line))
        except (DamagedLine, ValueError, KeyError, TypeError):
            last = number == len(lines) and not unfinished
            damage = Damage(number, offset, torn_tail=last, end=offset + len(line) + 1)
            break
        offsets.append(offset)
        offset += len(line) + 1
    if damage is None and unfinished:
        damage = Damage(len(lines) + 1, offset, torn_tail=True, end=len(data))
    if damage is not None and not damage.torn_tail:
        return entries, damage
    whole = _whole_groups(entries)
    if whole < len(entries):
        damage = Damage(whole + 1, offsets[whole], torn_tail=True, end=len(data))
    return entries[:whole], damage


def _whole_groups(entries: Sequence[Entry]) -> int:
    """How many entries there are up to the last one with nothing missing behind it."""
    number = len(entries)
    while number and entries[number - 1].more:
        number -= 1
    return number
