"""Names and messages that would break or take over a LaTeX document, if they reached it as they are."""

import random

BY_HAND = (
    r"$\alpha_1$",
    r"\input{/etc/passwd}",
    "^^5cinput{secret}",
    "^^M\\end{document}",
    "100% {of} #1 & more_things ~ \\",
    "}{}}{{",
    "[x]",
    "*starred",
    "]",
    "a\nb \\write18{id}",
    "line\r\n\tother",
    "\x1b]52;c;ZXZpbA==\x07 bell",
    "\x00nul\x7fdel\x9bcsi",
    "\u202emoc.live",
    "zero\u200bwidth",
    "emoji \U0001f600 \U0001f1e9\U0001f1ea",
    "M\u00fcller \u00c5ngstr\u00f6m \u0141\u00f3d\u017a \u015a\u0148\u011b",
    "e\u0301 decomposed",
    "\u03c4=4.8 \u00d7 3 \u00b5s \u2192 \u2264 5",
    "\u65e5\u672c\u8a9e",
    "a--b---c,,d''e``f!`?`<<>>",
    '"quoted" |bar| <b>',
    "ff fi fl ffi ffl office",
    "x" * 90,
    "word " * 120,
    "/a/very/long/path/of/a/model/that/has/no/blank/in/it/at/all/Qwen3.6-27B-DFlash",
    "\\begin{verbatim}",
    "\\csname end\\endcsname{document}",
    "%",
    "\\",
    "~",
    "=cmd|' /C calc'!A0",
)

_PIECES = [chr(code) for code in range(1, 256)] + [
    "\\input{",
    "^^41",
    "\\\\[",
    "\\par",
    "$$",
    "--",
    "\u202e",
    "\u20ac",
    "\u2014",
    "\u0161",
    "\u0416",
    "\U0001f4a5",
    " ",
    " ",
    "word",
    "Qwen3.6",
]


def dataset_of_names(generated: int = 300) -> list[str]:
    """Those by hand and as many made of random pieces, always the same."""
    dice = random.Random(7)
    made = ["".join(dice.choices(_PIECES, k=dice.randint(1, 24))) for _ in range(generated)]
    return [*BY_HAND, *made]
