"""The newest lines of a log, by absolute line number: pruning moves the origin and never a reader's position."""

import re
from collections.abc import Iterable
from enum import IntEnum

from ddconsole.core.visible_text import last_segment
from screens.spans import shown

MOST_LINES = 20_000
MOST_CHARACTERS = 8_000_000
LONGEST_KEPT = 4_000
"""Characters kept of one line; the whole line stands in the launch's server.log."""
_LOOKED_AT = 400
"""Characters in which a severity is looked for: it stands at the beginning of a line."""
_SLACK = 1_000
"""Lines above the cap before it is pruned, so that pruning is rare."""


class Severity(IntEnum):
    """How a line is marked."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2
    GAP = 3
    """Not a line of the log: lines were left out here."""


_ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Traceback|[A-Z]\w{0,60}(?:Error|Exception)|error:|Killed|Segmentation fault"
    r"|core dumped|[Oo]ut of memory)\b|\berror: |! exit code [1-9]"
)
_WARNING = re.compile(r"\b(?:WARN|WARNING|[Ww]arning|deprecated)\b")


def severity_of(text: str) -> Severity:
    """An error, a warning or neither, by the words at the beginning of the line."""
    beginning = text[:_LOOKED_AT]
    if _ERROR.search(beginning):
        return Severity.ERROR
    return Severity.WARNING if _WARNING.search(beginning) else Severity.PLAIN


class LogBuffer:
    """Lines with absolute numbers from 1. What is older than the caps is forgotten and counted."""

    def __init__(self, most_lines: int = MOST_LINES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_lines = most_lines
        self._most_characters = most_characters
        self._texts: list[str] = []
        self._severities = bytearray()
        self._characters = 0
        self.first = 1
        """Number of the oldest line that is kept."""
        self.dropped = 0
        """Lines that were left out on the way here."""
        self.pruned = 0
        """Lines that were here and are forgotten."""
        self.errors = 0
        """Error lines that came, forgotten ones included."""

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def last(self) -> int:
        """Number of the newest line; `first - 1` when there is none."""
        return self.first + len(self._texts) - 1

    def clear(self) -> None:
        """Forget everything; numbering begins again."""
        self._texts.clear()
        self._severities.clear()
        self._characters = 0
        self.first = 1
        self.dropped = self.pruned = self.errors = 0

    def text(self, number: int) -> str:
        """The text of a line that is kept."""
        return self._texts[number - self.first]

    def severity(self, number: int) -> Severity:
        """How a line that is kept is marked."""
        return Severity(self._severities[number - self.first])

    def add(self, lines: Iterable[str], dropped: int = 0) -> int:
        """Take lines in; `dropped` of them were left out before the first. Says how many lines came in."""
        if dropped:
            self.dropped += dropped
            self._append(f"··· {dropped:,} lines are left out here; they are in server.log ···", Severity.GAP)
        count = 0
        for raw in lines:
            text = shown(last_segment(raw))
            if len(text) > LONGEST_KEPT:
                text = f"{text[:LONGEST_KEPT]}… (+{len(raw) - LONGEST_KEPT:,} characters)"
            self._append(text, severity_of(text))
            count += 1
        over = len(self._texts) - self._most_lines
        if over > min(_SLACK, self._most_lines // 4) or self._characters > self._most_characters:
            self._prune()
        return count + (1 if dropped else 0)

    def _append(self, text: str, severity: Severity) -> None:
        self._texts.append(text)
        self._severities.append(severity)
        self._characters += len(text)
        self.errors += severity is Severity.ERROR

    def _prune(self) -> None:
        cut = max(0, len(self._texts) - self._most_lines)
        characters = self._characters - sum(len(text) for text in self._texts[:cut])
        while characters > self._most_characters * 0.9 and cut < len(self._texts) - 1:
            characters -= len(self._texts[cut])
            cut += 1
        del self._texts[:cut]
        del self._severities[:cut]
        self._characters = characters
        self.first += cut
        self.pruned += cut

    def find(self, wanted: str, after: int, step: int = 1) -> int | None:
        """The next line from `after` on (`step` 1) or before it (-1) that contains `wanted`, once around; or None.

        Small letters match both cases, a capital letter only itself.
        """
        if not wanted or not self._texts:
            return None
        fold = wanted == wanted.lower()
        for index in self._around(after, step):
            text = self._texts[index]
            if wanted in (text.lower() if fold else text):
                return self.first + index
        return None

    def find_error(self, after: int) -> int | None:
        """The next line after `after` that is marked as an error, once around; or None."""
        wanted = bytes((Severity.ERROR,))
        start = max(0, after - self.first + 1)
        index = self._severities.find(wanted, start)
        if index < 0:
            index = self._severities.find(wanted)
        return None if index < 0 else self.first + index

    def _around(self, after: int, step: int) -> Iterable[int]:
        size = len(self._texts)
        start = after - self.first + step
        if step > 0:
            start = max(0, min(size, start))
            return (*range(start, size), *range(start))
        start = max(-1, min(size - 1, start))
        return (*range(start, -1, -1), *range(size - 1, start, -1))
