"""The tokens that had come with the first text: they cost no time that the output rate counts."""

from ddconsole.core.records import TokenSource


class FirstRead:
    """Collects what the chunks of the read tell in which the first text came. There may be several in one read."""

    def __init__(self) -> None:
        self._chunks = 0
        self._characters = 0
        self._told: tuple[int, TokenSource] | None = None

    def take(self, characters: int, told: tuple[int, TokenSource] | None) -> None:
        """One chunk with text: its length, and the tokens so far where the engine told them with it."""
        self._chunks += 1
        self._characters += characters
        self._told = told

    def tokens(
        self, output: int | None, source: TokenSource | None, chunks: int, characters: int
    ) -> tuple[int | None, TokenSource | None]:
        """The tokens of the first read, and who counted them.

        Args:
            output: tokens of the whole answer.
            source: who counted those.
            chunks: chunks with text of the whole answer.
            characters: of its text.
        """
        if not self._chunks or output is None or source is None:
            return None, None
        if self._told is not None:
            return self._told
        if chunks >= output:  # a token a chunk, or fewer
            return min(self._chunks, output), source
        share = round(output * self._characters / characters) if characters else 0
        return min(max(self._chunks, share), output - (chunks - self._chunks)), TokenSource.ESTIMATED
