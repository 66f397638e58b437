"""Server-sent events, split incrementally: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventSplitter:
    """Turns the bytes of one stream, cut anywhere, into the data of its events.

    Lines end with LF, CR or CRLF and may have any length; what is not complete yet is kept in pieces, so the cost is
    linear in the bytes. Only the field `data` is read: comments, event names, ids and retry times are passed over.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of the line that has not ended yet."""
        self._data: list[bytes] = []
        """Data lines of the event that has not ended yet."""
        self._after_cr = False
        self._at_start = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of each event that `received` completes, in order; several data lines are joined by LF."""
        if received.startswith(b"data: ") and received.endswith(b"\n\n") and self._is_one_event(received):
            self._at_start = False
            return [received[6:-2]]
        if not received:
            return []
        if self._after_cr:
            received = received.removeprefix(b"\n")
        self._after_cr = received.endswith(b"\r")
        payloads: list[bytes] = []
        for line in received.splitlines(keepends=True):
            if line[-1] not in b"\r\n":
                self._line.append(line)
                continue
            content = line.rstrip(b"\r\n")
            if self._line:
                self._line.append(content)
                content = b"".join(self._line)
                self._line.clear()
            self._take_line(content, payloads)
        return payloads

    def close(self) -> list[bytes]:
        """The event that the end of the stream left open, if it has data.

        The standard drops it; some servers end with `data: [DONE]` and no blank line.
        """
        payloads: list[bytes] = []
        if self._line:
            self._take_line(b"".join(self._line), payloads)
            self._line.clear()
        self._take_line(b"", payloads)
        return payloads

    def _is_one_event(self, received: bytes) -> bool:
        """Whether it is a whole event of one line, as most reads are: nothing is open, no other line end in it."""
        if self._line or self._data:
            return False
        return received.find(b"\n") == len(received) - 2 and b"\r" not in received

    def _take_line(self, line: bytes, payloads: list[bytes]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            self._data.append(b"")
