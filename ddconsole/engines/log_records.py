"""A raw log line as records: progress bars overwrite themselves, and a record may start in the middle of one."""

import re

MOST_SEGMENTS = 64
"""Of a line with more carriage returns only the last segments are looked at."""

PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?P<tags>[^\]]{0,40})\] ")
"""SGLang's time stamp with its rank tags (` DP0 TP1`), absent where the size is 1."""

_MIDLINE = re.compile(r"(?<=[^\n])(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,40}\] )")


def records(line: str) -> list[str]:
    """The records of one line without its newline, in order; blank segments are left out."""
    if "\r" in line:
        return [one for segment in line.rsplit("\r", MOST_SEGMENTS) if segment.strip() for one in _split(segment)]
    return _split(line)


def _split(segment: str) -> list[str]:
    if segment.count("[20") < (2 if segment.startswith("[20") else 1):
        return [segment]
    return [part for part in _MIDLINE.split(segment) if part.strip()]
