"""How large a GGUF file must be, by its own header (specification: ggml/docs/gguf.md)."""

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import prod

ReadAt = Callable[[int, int], Awaitable[bytes]]
"""Bytes from an offset, at most a length."""

_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 28
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a metadata value, by its type."""
_UINT32, _STRING, _ARRAY = 4, 8, 9
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
    35: (256, 66), 39: (32, 17),
}  # fmt: skip
"""Elements and bytes of a block, by ggml's tensor type."""


class GgufError(ValueError):
    """This is no whole GGUF header; the text says why."""


@dataclass(frozen=True, slots=True)
class GgufSize:
    """What the header asks for."""

    at_least: int
    """Bytes that the file must have."""
    exact: bool
    """False where a tensor's type is not known here, so that its end is not."""
    tensors: int


async def gguf_size(read_at: ReadAt) -> GgufSize:
    """The size that the header of a GGUF file asks for.

    Raises:
        GgufError: it is none, or it ends within its header.
    """
    cursor = _Cursor(read_at)
    if await cursor.take(4) != b"GGUF":
        raise GgufError("it does not begin with GGUF")
    version = await cursor.number("<I")
    if version not in {2, 3}:
        raise GgufError(f"GGUF version {version} is not known")
    tensors, pairs = await cursor.number("<Q"), await cursor.number("<Q")
    alignment = 32
    for _ in range(pairs):
        key = await cursor.string()
        kind = await cursor.number("<I")
        if key == b"general.alignment" and kind == _UINT32:
            alignment = await cursor.number("<I")
        else:
            await cursor.skip_value(kind)
    end, exact = 0, True
    for _ in range(tensors):
        tensor_end, known = await _tensor_end(cursor)
        end, exact = max(end, tensor_end), exact and known
    start = -(-cursor.at // max(alignment, 1)) * max(alignment, 1)
    return GgufSize(start + end, exact, tensors)


async def _tensor_end(cursor: "_Cursor") -> tuple[int, bool]:
    """Where a tensor's data ends after the start of the data, and whether its type is known."""
    await cursor.string()
    dimensions = [await cursor.number("<Q") for _ in range(await cursor.number("<I"))]
    kind, offset = await cursor.number("<I"), await cursor.number("<Q")
    if kind not in _BLOCKS:
        return offset, False
    elements, size = _BLOCKS[kind]
    return offset + prod(dimensions) // elements * size, True


class _Cursor:
    """Reads a header from its start, a chunk at a time."""

    def __init__(self, read_at: ReadAt) -> None:
        self._read_at = read_at
        self._chunk = b""
        self._chunk_at = 0
        self.at = 0

    async def take(self, length: int) -> bytes:
        if self.at + length > _LONGEST_HEADER:
            raise GgufError("its header is absurdly long")
        begin = self.at - self._chunk_at
        if begin + length > len(self._chunk):
            self._chunk_at, begin = self.at, 0
            self._chunk = await self._read_at(self.at, max(length, _CHUNK))
            if len(self._chunk) < length:
                raise GgufError("it ends within its header")
        self.at += length
        return self._chunk[begin : begin + length]

    async def number(self, form: str) -> int:
        return int(struct.unpack(form, await self.take(struct.calcsize(form)))[0])

    async def string(self) -> bytes:
        return await self.take(await self.number("<Q"))

    async def skip_value(self, kind: int) -> None:
        if kind == _STRING:
            await self.string()
        elif kind == _ARRAY:
            inner, count = await self.number("<I"), await self.number("<Q")
            if inner in _SCALARS:
                await self.take(_SCALARS[inner] * count)
            else:
                for _ in range(count):
                    await self.skip_value(inner)
        elif kind in _SCALARS:
            await self.take(_SCALARS[kind])
        else:
            raise GgufError(f"a metadata value has the unknown type {kind}")
