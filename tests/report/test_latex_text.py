import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddconsole.report.latex_text import (
    LONGEST_TEXT,
    NotANumber,
    comment_text,
    file_stem,
    folded,
    latex_text,
    lost_characters,
    macro_letters,
    number_text,
)


@given(st.text())
def test_what_goes_to_latex_is_ascii_without_live_commands(text: str) -> None:
    shown = latex_text(text)
    assert shown.isascii()
    # Every backslash begins one of our own commands; every other special character stands behind one.
    own = (
        "kern0pt|text[a-z]+|ensuremath|alpha|beta|gamma|lambda|sigma|tau|to|le|ge|AE|ae|OE|oe|O|o|ss|L|l|i|DH|dh|TH|th"
    )
    rest = re.sub(rf"\\({own})\b", "", shown)
    rest = re.sub(r"\\[`'^~\"rHvu.ck]\{[A-Za-z]\}", "", rest)
    rest = re.sub(r"\\[{}$&#%_]", "", rest)
    assert not set(rest) & set("\\$&#%_^~\"'`|<>")
    assert rest.count("{") == rest.count("}")


@given(st.text())
def test_folding_is_printable_one_line_and_short(text: str) -> None:
    shown = folded(text)
    assert len(shown) <= LONGEST_TEXT
    assert shown.isprintable()
    assert folded(shown) == shown
    assert not any(unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co"} for one in shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[31m", "^[[31m"),
        ("\x9b", "<9B>"),
        ("\u202eabc", "<U+202E>abc"),
        ("\U0001f600", "<U+1F600>"),
        ("e\u0301", "\u00e9"),
        ("\u0416", "<U+0416>"),
    ],
)
def test_folding_by_example(text: str, expected: str) -> None:
    assert folded(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^^5cinput{x}", r"\textasciicircum{}\textasciicircum{}5cinput\{x\}"),
        ("[x]", "{[}x{]}"),
        ("a_b", r"a\_b"),
        ("a--b", r"a-{\kern0pt}-b"),
        ("\u00fc", r"\"{u}"),
    ],
)
def test_escaping_by_example(text: str, expected: str) -> None:
    assert latex_text(text) == expected


def test_lost_characters_are_named_once() -> None:
    assert lost_characters(["a\U0001f600", "\U0001f600b \u00fc\n"]) == ["<U+1F600>"]


@given(st.text())
def test_a_comment_stays_one_line(text: str) -> None:
    shown = comment_text(text)
    assert re.fullmatch(r"[A-Za-z0-9 .,:;()/+=@_?-]*", shown)


@given(st.text())
def test_file_names_and_macro_names_keep_to_their_letters(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", file_stem(text))
    assert re.fullmatch(r"[A-Za-z]*", macro_letters(text))


def test_macro_letters_spell_digits() -> None:
    assert macro_letters("ddtree-b15 TP1") == "DdtreeBOneFiveTPOne"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, 1e15])
def test_the_number_gate_refuses(value: float) -> None:
    with pytest.raises(NotANumber):
        number_text(value, 1)


def test_the_number_gate_lets_through() -> None:
    assert [number_text(value, 1) for value in (1234.56, -0.04, 0, -3.14)] == ["1234.6", "0.0", "0.0", "-3.1"]
