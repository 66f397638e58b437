"""A streamed answer that is packed on the way, and whole at every write: what was written can be read at once."""

import zlib

from aiohttp import web

_LEVEL = 6
"""Of zlib: a journal or a sample of the machine is a tenth of itself, and there are few of them."""


class PackedStream:
    """Lines to one console, for as long as it listens."""

    def __init__(self, response: web.StreamResponse, *, packs: bool) -> None:
        self._response = response
        self._packer = zlib.compressobj(_LEVEL) if packs else None

    async def write(self, data: bytes) -> None:
        """Send lines.

        Raises:
            OSError: the console is gone.
        """
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        await self._response.write(data)


async def open_stream(request: web.Request) -> tuple[web.StreamResponse, PackedStream]:
    """Begin the answer; packed where the console takes that."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    packs = "deflate" in request.headers.get("Accept-Encoding", "")
    if packs:
        response.headers["Content-Encoding"] = "deflate"
    await response.prepare(request)
    return response, PackedStream(response, packs=packs)
