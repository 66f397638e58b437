"""One HTTP/1.1 answer, read as it comes. The grammar is llhttp's, through `httptools`."""

from collections.abc import Callable

import httptools

_LONGEST_HEAD = 64 * 1024
_FIRST_FINAL_STATUS = 200


class BadAnswer(Exception):
    """What came is no answer that can be read. The text is for the operator."""


class HttpAnswer:
    """Takes the bytes of a connection and hands on those of the body.

    Interim answers (100 Continue) are passed over. The body ends by its length, its last chunk, or with the
    connection where the server gave neither.

    Args:
        take: gets each piece of the body.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._parser = httptools.HttpResponseParser(self)
        self._head = 0
        self._in_body = False
        self._until_close = True
        self._encoding = b""
        self.status = 0
        """0 until the head is there."""
        self.complete = False

    def feed(self, received: bytes) -> None:
        """Read on.

        Raises:
            BadAnswer: it is not HTTP, its head does not end, or it is compressed although that was not asked for.
        """
        if not self._in_body:
            if self._head > _LONGEST_HEAD:
                raise BadAnswer(f"the head of the answer is longer than {_LONGEST_HEAD // 1024} KiB")
            self._head += len(received)
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserCallbackError as problem:
            raise problem.__context__ or problem from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            if not self.complete:  # what follows an answer is nobody's
                raise BadAnswer(f"the answer is not HTTP: {problem}") from problem

    def end(self) -> bool:
        """The connection was closed: whether the answer is whole."""
        if self._in_body and self._until_close:
            self.complete = True
        return self.complete

    # --- called by the parser ----------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the head, or a trailer."""
        lower = name.lower()
        if lower == b"content-length" or (lower == b"transfer-encoding" and b"chunked" in value.lower()):
            self._until_close = False
        elif lower == b"content-encoding":
            self._encoding = value.strip().lower()

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL_STATUS:
            self._until_close = True
            return
        if self._encoding not in (b"", b"identity"):
            told = self._encoding.decode("latin-1")
            raise BadAnswer(f"the answer is compressed ({told}) although `Accept-Encoding: identity` was sent")
        self.status = status
        self._in_body = True

    def on_body(self, piece: bytes) -> None:
        """A piece of the body, its framing taken off."""
        self._take(piece)

    def on_message_complete(self) -> None:
        """The answer has ended; an interim one does not count."""
        self.complete = self._in_body
