"""Text from outside made safe to show: control characters visible, never obeyed."""

import re

LONGEST_LINE = 16 * 1024
"""Characters kept of one line for showing; the whole line stays in the file."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


def visible(text: str, longest: int = LONGEST_LINE) -> str:
    """`text` with C0, DEL, C1 and bidirectional controls in caret or hex notation, and cut to `longest`.

    Tabs and newlines stay. ESC becomes `^[`, 0x9B becomes `<9B>`, U+202E becomes `<U+202E>`.
    """
    if len(text) > longest:
        text = f"{text[:longest]}… (+{len(text) - longest:,} characters)"
    return _UNSAFE.sub(_notation, text)


def visible_line(text: str, longest: int = LONGEST_LINE) -> str:
    """As `visible`, for one line: newlines become `⏎` and tabs become blanks."""
    return visible(text, longest).replace("\n", "⏎").replace("\t", "    ")


def last_segment(line: str) -> str:
    r"""What a terminal would show of a line with carriage returns: the last segment that is not empty."""
    if "\r" not in line:
        return line
    for segment in reversed(line.split("\r")):
        if segment:
            return segment
    return ""


def _notation(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return "^" + chr(code + 0x40)
    if code == 0x7F:
        return "^?"
    return f"<{code:02X}>" if code < 0x100 else f"<U+{code:04X}>"
