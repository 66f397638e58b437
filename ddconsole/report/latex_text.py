"""The one way of text from outside into LaTeX: names, messages and numbers.

Text is first folded to what can be typeset, then escaped. The folding, which is what a reader of the PDF gets:

1. Newlines, tabs and other white space become one blank; blanks at the ends go.
2. Control characters and invisible or bidirectional ones become visible: `^[`, `<9B>`, `<U+202E>`.
3. Letters with accents are composed (NFC). ASCII, the letters of Western and Central Europe in the T1 encoding and the
   signs in `_SIGNS` stay as they are.
4. `...` and minus signs of Unicode become ASCII; every other character becomes `<U+1F600>`.
5. What is longer than `LONGEST_TEXT` is cut, and ends in `...`.

The result is ASCII. It needs the packages of `ddconsole-preamble.tex`: fontenc with T1, and textcomp's signs, which
the LaTeX kernel has had since 2020.
"""

import math
import re
import unicodedata
from collections.abc import Iterable

from ddconsole.core.visible_text import visible

LONGEST_TEXT = 400
"""Characters of one name or message that are typeset; the whole text stands in the CSV twin."""

_ASCII = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after `\\` a bare one would begin an optional argument
    "]": "{]}",
    "*": "{*}",  # after `\\` a bare one would be taken for its star
}

_JOINED = "-,<>"
"""Two of these in a row would become another sign: a dash, or a quotation mark in T1. LuaTeX looks through braces."""

_PLAIN = {"\u2026": "...", "\u2212": "-", "\u2010": "-", "\u2011": "-"}
"""Signs that ASCII says as well."""

_SIGNS = {
    "\u00b5": r"\textmu{}",
    "\u00d7": r"\texttimes{}",
    "\u00f7": r"\textdiv{}",
    "\u00b0": r"\textdegree{}",
    "\u00b1": r"\textpm{}",
    "\u00a7": r"\textsection{}",
    "\u00a9": r"\textcopyright{}",
    "\u20ac": r"\texteuro{}",
    "\u2013": r"\textendash{}",
    "\u2014": r"\textemdash{}",
    "\u2018": r"\textquoteleft{}",
    "\u2019": r"\textquoteright{}",
    "\u201c": r"\textquotedblleft{}",
    "\u201d": r"\textquotedblright{}",
    "\u03b1": r"\ensuremath{\alpha}",
    "\u03b2": r"\ensuremath{\beta}",
    "\u03b3": r"\ensuremath{\gamma}",
    "\u03bb": r"\ensuremath{\lambda}",
    "\u03c3": r"\ensuremath{\sigma}",
    "\u03c4": r"\ensuremath{\tau}",
    "\u2192": r"\ensuremath{\to}",
    "\u2264": r"\ensuremath{\le}",
    "\u2265": r"\ensuremath{\ge}",
}

_LETTERS = {
    "\u00c6": r"\AE{}",
    "\u00e6": r"\ae{}",
    "\u0152": r"\OE{}",
    "\u0153": r"\oe{}",
    "\u00d8": r"\O{}",
    "\u00f8": r"\o{}",
    "\u00df": r"\ss{}",
    "\u0141": r"\L{}",
    "\u0142": r"\l{}",
    "\u0131": r"\i{}",
    "\u00d0": r"\DH{}",
    "\u00f0": r"\dh{}",
    "\u00de": r"\TH{}",
    "\u00fe": r"\th{}",
}

_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0306": "u",
    "\u0307": ".",
    "\u0327": "c",
    "\u0328": "k",
}

_ACCENTED = frozenset(
    "ÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖÙÚÛÜÝàáâãäåçèéêëìíîïñòóôõöùúûüýÿ"  # Latin-1
    "ĂăĄąĆćČčĎďĚěĘęĞğĹĺĽľŃńŇňŐőŔŕŘřŚśŠšŞşŤťŰűŮůŸŹźŽžŻżİ"  # what else is one glyph in T1
)

_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;()/+=@_-]+")
_NOT_IN_FILE_NAME = re.compile(r"[^a-z0-9]+")
_BREAK_AFTER = re.compile(r"[/_.=:;,-]")
_LONGEST_WORD = 12
_OURS = re.compile(r"[(]?[A-Za-z][a-z]{0,14}(-[a-z]{1,14})?[.,;:)]*")
"""Words that TeX is left to hyphenate: anything else may be a name, and gets its own chances to break."""
_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


class NotANumber(ValueError):
    """What was to enter a number column is not a plain finite number."""


def folded(text: str) -> str:
    """What a reader gets of `text`: see the module's rules."""
    composed = unicodedata.normalize("NFC", text)
    shown = "".join(_fold(one) for one in visible(" ".join(composed.split()), longest=len(composed) + 1))
    return shown if len(shown) <= LONGEST_TEXT else shown[: LONGEST_TEXT - 3].rstrip() + "..."


def latex_text(text: str, *, breakable: bool = False) -> str:
    """`text` folded and escaped, for any place in a paragraph or table cell.

    Args:
        text: from outside, anything.
        breakable: give lines a chance to break within long words, for narrow columns.
    """
    shown = folded(text)
    if not breakable:
        return _escaped(shown)
    return " ".join(_breakable_word(word) for word in shown.split(" "))


def prose(text: str) -> str:
    """A text of ours that names may have made long: word by word, so that it is not cut as one name would be."""
    return " ".join(latex_text(word, breakable=_OURS.fullmatch(word) is None) for word in text.split())


def lost_characters(texts: Iterable[str]) -> list[str]:
    """The characters of `texts` that cannot be typeset, as `<U+1F600>`, sorted."""
    lost = {
        one
        for text in texts
        for one in unicodedata.normalize("NFC", text)
        if not one.isspace() and one not in _PLAIN and one != _fold(one)
    }
    return sorted(_fold(one) for one in lost)


def comment_text(text: str) -> str:
    """`text` for a comment or an error message: one line, letters, digits and harmless punctuation only."""
    return _NOT_PLAIN.sub("?", " ".join(text.split()))[:200].strip()


def file_stem(*parts: str) -> str:
    """A file name of `[a-z0-9-]+` from names; different names may give the same one."""
    return _NOT_IN_FILE_NAME.sub("-", "-".join(parts).lower()).strip("-") or "x"


def macro_letters(text: str) -> str:
    """Letters only, for a macro's name: words capitalised, digits spelled out, anything else left out."""
    words = re.findall(r"[A-Za-z]+|[0-9]", text)
    return "".join(_DIGITS[int(word)] if word.isdigit() else word[0].upper() + word[1:] for word in words)


def number_text(value: float, decimals: int) -> str:
    """A number for an S column or a coordinate.

    Raises:
        NotANumber: it is not finite, or not a number at all.
    """
    if isinstance(value, bool) or not math.isfinite(value):
        raise NotANumber(f"{value!r} cannot stand in a number column")
    text = f"{value:.{decimals}f}"
    if _NUMBER.fullmatch(text) is None:
        raise NotANumber(f"{text!r} cannot stand in a number column")
    return text.removeprefix("-") if float(text) == 0 else text


def _fold(one: str) -> str:
    if one in _PLAIN:
        return _PLAIN[one]
    if " " <= one <= "~" or one in _SIGNS or one in _LETTERS or one in _ACCENTED:
        return one
    seen = visible(one)
    return seen if seen != one and seen.isascii() else f"<U+{ord(one):04X}>"


def _escaped(shown: str) -> str:
    return "".join(_escape(one, before) for one, before in zip(shown, " " + shown, strict=False))


def _escape(one: str, before: str) -> str:
    if one == before and one in _JOINED:
        return rf"{{\kern0pt}}{_ASCII.get(one, one)}"
    if one.isascii():
        return _ASCII.get(one, one)
    if one in _SIGNS or one in _LETTERS:
        return _SIGNS.get(one) or _LETTERS[one]
    apart = unicodedata.normalize("NFD", one)
    return f"\\{_ACCENTS[apart[1]]}{{{apart[0]}}}"


def _breakable_word(word: str) -> str:
    pieces: list[str] = []
    since = 0
    for number, one in enumerate(word):
        pieces.append(_escape(one, word[number - 1] if number else " "))
        since += 1
        more = number + 1 < len(word)
        if more and (since >= _LONGEST_WORD or (since > 3 and _BREAK_AFTER.match(one))):
            pieces.append(r"\allowbreak{}")
            since = 0
    return "".join(pieces)
