"""Lines out of chunks, without a limit on their length."""


class LineSplitter:
    """Splits a byte stream at newlines. A chunk is looked at once, however long its line becomes."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in `chunk`, without their newlines."""
        if b"\n" not in chunk:
            if chunk:
                self._begun.append(chunk)
            return []
        first, *others = chunk.split(b"\n")
        unfinished = others.pop()
        lines = [b"".join((*self._begun, first)), *others]
        self._begun = [unfinished] if unfinished else []
        return lines

    @property
    def unfinished(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._begun)
