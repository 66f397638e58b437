"""YAML with places: what is read, what is refused, and that nothing else can come out of it."""

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as s

from ddconsole.core.plan_problem import PlanError
from ddconsole.planfile.yaml_nodes import DEEPEST, LARGEST, Place, decode_plan, read_yaml
from ddconsole.planfile.yaml_scalars import AmbiguousScalarError, plain_scalar


def problem_of(text: str) -> str:
    with pytest.raises(PlanError) as refused:
        read_yaml(text, "plan.yaml")
    assert len(refused.value.problems) == 1
    return str(refused.value)


def test_every_key_and_value_has_its_place() -> None:
    placed = read_yaml('a: 1\nb:\n  - x\n  - {c: "two", 3: null}\n', "plan.yaml")
    assert placed.data == {"a": 1, "b": ["x", {"c": "two", 3: None}]}
    assert placed.values[("a",)] == Place(1, 4)
    assert placed.values[("b", 1, "c")] == Place(4, 9)
    assert placed.keys[("b", 1, "c")] == Place(4, 6)
    assert placed.values[("b", 1, 3)] == Place(4, 19)
    assert placed.keys[("b",)] == Place(2, 1)


def test_the_place_of_what_is_missing_is_that_of_the_nearest_around_it() -> None:
    placed = read_yaml("a:\n  b: {c: 1}\n", "plan.yaml")
    assert placed.place_of(("a", "b", "absent", 3)) == placed.values[("a", "b")]
    assert placed.place_of(("a", "b", "c"), key=True) == Place(2, 7)
    assert placed.place_of(("nothing",)) == Place(1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "E110 plan.yaml:1: the file is empty (a plan begins with name: and host:)"),
        ("a: 1\n---\nb: 2\n", "E110 plan.yaml:3: a second document begins here (one plan a file)"),
        ("%YAML 1.1\n---\na: 1\n", "E110 plan.yaml:2: YAML directives are not allowed (remove the % lines)"),
        (
            "a: 1\nb: !!python/object/apply:os.system [id]\n",
            "E110 plan.yaml:2: tag !!python/object/apply:os.system is not allowed (remove it)",
        ),
        ("a: !!str 1\n", "E110 plan.yaml:1: tag !!str is not allowed (remove it)"),
        ("a: !mine 1\n", "E110 plan.yaml:1: tag !mine is not allowed (remove it)"),
        ("!!str a: 1\n", "E110 plan.yaml:1: tag !!str is not allowed (remove it)"),
        ("a: &x 1\nb: *x\n", "E111 plan.yaml:1: anchor &x is not allowed (write the value out)"),
        ("a: 1\nb: *x\n", "E111 plan.yaml:2: alias *x is not allowed (write the value out)"),
        ("*x : 1\n", "E111 plan.yaml:1: alias *x is not allowed (write the key out)"),
        ("&x a: 1\n", "E111 plan.yaml:1: anchor &x is not allowed (remove it)"),
        ("? [a, b]\n: 1\n", "E110 plan.yaml:1: a list or mapping as a key (keys are words or whole numbers)"),
        ("{a: 1}: 1\n", "E110 plan.yaml:1: a list or mapping as a key (keys are words or whole numbers)"),
        (
            "a:\n  concurrency: 1\n  x: 2\n  concurrency: 3\n",
            'E112 plan.yaml:4: key "concurrency" already set at line 2 (keep one of the two)',
        ),
        ('1: a\n"1": b\n1: c\n', 'E112 plan.yaml:3: key "1" already set at line 1 (keep one of the two)'),
        ("a: b: c\n", "E110 plan.yaml:1: not YAML: mapping values are not allowed here at column 5"),
        (
            "a: [1, 2\n",
            "E110 plan.yaml:2: not YAML: while parsing a flow sequence expected ',' or ']', but got '<stream",
        ),
        ("a:\n\t- b\n", "E110 plan.yaml:2: not YAML: while scanning for the next token found character '\\t'"),
        ("a: x\0y\n", "E110 plan.yaml:1: control character U+0000 at column 5 (remove it)"),
        ("a: 1\nb: \x1b[2J\n", "E110 plan.yaml:2: control character U+001B at column 4 (remove it)"),
        ("a: \udc80\n", "E110 plan.yaml:1: control character U+DC80 at column 4 (remove it)"),
        ('a: "\\ud800\\udc00"\n', "E110 plan.yaml:1: \\ud800 is half of a character (write the character itself)"),
        ('"\\udc00": 1\n', "E110 plan.yaml:1: \\udc00 is half of a character (write the character itself)"),
        (
            "on: 1\n",
            'E113 plan.yaml:1: the key on is the boolean true to some YAML readers (quote it: "on", or write true)',
        ),
        ("true: 1\n", 'E113 plan.yaml:1: the key true is not a word (quote it: "true")'),
        ("1.5: 1\n", 'E113 plan.yaml:1: the key 1.5 is not a word (quote it: "1.5")'),
        (": 1\n", 'E113 plan.yaml:1: the key (nothing) is not a word (quote it: "")'),
    ],
)
def test_what_a_plan_may_not_be(text: str, expected: str) -> None:
    assert problem_of(text).startswith(expected)


@pytest.mark.parametrize(
    ("scalar", "why"),
    [
        ("no", 'a.b: no is the boolean false to some YAML readers (quote it: "no", or write false)'),
        ("Yes", 'a.b: Yes is the boolean true to some YAML readers (quote it: "Yes", or write true)'),
        ("off", 'a.b: off is the boolean false to some YAML readers (quote it: "off", or write false)'),
        ("y", 'a.b: y is the boolean true to some YAML readers (quote it: "y", or write true)'),
        ("N", 'a.b: N is the boolean false to some YAML readers (quote it: "N", or write false)'),
        (
            "010",
            'a.b: 010 is not the same number to all YAML readers (quote it: "010", or write it in plain dec',
        ),
        ("0o777", 'a.b: 0o777 is not the same number to all YAML readers (quote it: "0o777", or write it in plain dec'),
        ("0b11", 'a.b: 0b11 is not the same number to all YAML readers (quote it: "0b11", or write it in plain dec'),
        ("1_000", 'a.b: 1_000 is not the same number to all YAML readers (quote it: "1_000", or write it in plain dec'),
        (
            "1e9",
            'a.b: 1e9 is not the same number to all YAML readers (quote it: "1e9", or write the exponent as in 1.0e+9)',
        ),
        ("12:30", 'a.b: 12:30 is a number in base 60 to some YAML readers (quote it: "12:30")'),
        ("12:30:00", 'a.b: 12:30:00 is a number in base 60 to some YAML readers (quote it: "12:30:00")'),
        (".inf", "a.b: .inf is no finite number (write a number)"),
        ("-.INF", "a.b: -.INF is no finite number (write a number)"),
        (".nan", "a.b: .nan is no finite number (write a number)"),
        ("1.0e+999", "a.b: 1.0e+999 is no finite number (write a number)"),
        ("2026-11-30", 'a.b: 2026-11-30 is a date to some YAML readers (quote it: "2026-11-30")'),
        ("2026-11-30T10:00:00Z", "a.b: 2026-11-30T10:00:00Z is a date to some YAML readers"),
        ("<<", 'a.b: << is a merge to some YAML readers (quote it: "<<")'),
        ("=", 'a.b: = is the default value to some YAML readers (quote it: "=")'),
        ("9" * 41, "a.b: a number of 41 characters (quote it if it is text)"),
    ],
)
def test_scalars_that_readers_disagree_about_are_refused_with_advice(scalar: str, why: str) -> None:
    assert problem_of(f"a:\n  b: {scalar}\n").startswith(f"E113 plan.yaml:2: {why}")
    assert read_yaml(f'a: "{scalar}"\n', "plan.yaml").data == {"a": scalar}


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-17", -17),
        ("+3", 3),
        ("0x1F", 31),
        ("3.10", 3.1),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.5e+3", 1500.0),
        ("20m", "20m"),
        ("1.2.3", "1.2.3"),
        ("yesterday", "yesterday"),
        ("user@host:22", "user@host:22"),
        ("NaN", "NaN"),
    ],
)
def test_plain_scalars(scalar: str, value: object) -> None:
    found = plain_scalar(scalar)
    assert found == value
    assert type(found) is type(value)


def test_depth_has_a_limit_with_its_place() -> None:
    read_yaml("[" * DEEPEST + "]" * DEEPEST, "plan.yaml")
    assert problem_of("[" * 10_000) == f"E111 plan.yaml:1: {'[0]' * DEEPEST}: more than 20 levels deep".replace(
        f"{'[0]' * DEEPEST}: ", ""
    )


def test_size_has_a_limit() -> None:
    assert problem_of("a" * (LARGEST + 1)) == "E111 plan.yaml: 1,048,577 bytes, a plan has 1,048,576 at most"
    with pytest.raises(PlanError, match="1,048,577 bytes"):
        decode_plan(b"#" * (LARGEST + 1), "plan.yaml")


def test_bytes_that_are_not_utf8_are_named_with_line_and_column() -> None:
    with pytest.raises(PlanError) as refused:
        decode_plan(b"a: 1\nb: caf\xe9\n", "plan.yaml")
    assert str(refused.value) == "E110 plan.yaml:2: byte 0xe9 at column 7 is not UTF-8 (save the file as UTF-8)"


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode_plan(b"\xef\xbb\xbfa: 1\n", "plan.yaml") == "a: 1\n"


def test_a_problem_shows_control_characters_and_is_never_long() -> None:
    assert problem_of(f"a: !{'x' * 5000} 1\n").count("\n") == 0
    assert len(problem_of(f"a: !{'x' * 5000} 1\n")) < 600


YAML_CHARACTERS = "ab:-[]{}\"'|>%@`!&*#,?\n\t \\xUu0189._+=<e~\x00\ud800é\u2028\x85"


@given(s.one_of(s.text(), s.text(alphabet=YAML_CHARACTERS)))
def test_no_text_raises_anything_but_a_plan_error(text: str) -> None:
    refused: list[PlanError] = []
    try:
        read_yaml(text, "plan.yaml")
    except PlanError as problem:
        refused.append(problem)
    assert all(one.problems and str(one) for one in refused)


NUMBER_LIKE = s.one_of(
    s.text(alphabet="0123456789+-.eE_:xobn~yTZ =<ainf", min_size=1, max_size=12),
    s.from_regex(r"\A[-+]?[0-9]{1,4}([.:_eE][-+]?[0-9]{0,3}){0,3}\Z"),
    s.sampled_from(["yes", "No", "NULL", "Null", "TRUE", "tRUE", "0x_1", "-0x1", "00", "08", "0.", "+.5", "1.e5", "="]),
)


@given(NUMBER_LIKE)
def test_an_accepted_scalar_means_the_same_to_a_yaml_1_1_reader(scalar: str) -> None:
    text = f"a: {scalar.strip()}\n"
    with contextlib.suppress(PlanError):
        ours = read_yaml(text, "plan.yaml").data
        theirs = yaml.safe_load(text)
        assert ours == theirs
        assert type(ours["a"]) is type(theirs["a"])


JSON_LIKE = s.recursive(
    s.none() | s.booleans() | s.integers(-(10**9), 10**9) | s.floats(allow_nan=False, allow_infinity=False) | s.text(),
    lambda inner: s.lists(inner, max_size=3) | s.dictionaries(s.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_LIKE)
def test_what_a_dumper_writes_quoted_comes_back_as_it_was(data: object) -> None:
    text = yaml.safe_dump({"a": data}, allow_unicode=False, default_style=None)
    with contextlib.suppress(PlanError):
        assert read_yaml(text, "plan.yaml").data == {"a": data}


@given(s.text(alphabet=s.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_any_printable_text_survives_double_quotes(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\u2028", "\\L").replace("\u2029", "\\P")
    with contextlib.suppress(PlanError):
        assert read_yaml(f'a: "{escaped}"', "plan.yaml").data == {"a": text}


def test_the_error_of_a_scalar_keeps_reason_and_remedy_apart() -> None:
    with pytest.raises(AmbiguousScalarError) as refused:
        plain_scalar("on")
    assert refused.value.text == "on is the boolean true to some YAML readers"
    assert refused.value.do == 'quote it: "on", or write true'
