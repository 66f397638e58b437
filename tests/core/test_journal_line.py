"""Journal lines: what is torn is known, what is damaged is not passed over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from journals import entries

from ddconsole.core import events as ev
from ddconsole.core.journal_line import DamagedLine, decode_line, encode_line, read_lines

LINES = [encode_line(entry) for entry in entries([ev.RunResumed("me"), ev.RunPaused("you", "ß\n"), ev.RunEnded("x")])]
DATA = b"".join(LINES)


def test_a_line_is_json_and_comes_back() -> None:
    entry = ev.Entry(2, 7, 1.25, ev.Warned("text", "about"), ev.Origin(3, 12))
    line = encode_line(entry)
    assert json.loads(line)["event"]["type"] == "Warned"
    assert decode_line(line) == entry


def test_every_torn_tail_is_found_at_its_line() -> None:
    for cut in range(len(DATA)):
        read, damage = read_lines(DATA[:cut])
        whole = [n for n in range(4) if sum(map(len, LINES[:n])) <= cut][-1]
        assert len(read) == whole
        if cut in (sum(map(len, LINES[:n])) for n in range(4)):
            assert damage is None
        else:
            assert damage is not None
            assert damage.torn_tail
            assert damage.offset == sum(map(len, LINES[:whole]))


def test_damage_in_the_middle_is_no_torn_tail() -> None:
    data = LINES[0] + LINES[1].replace(b"you", b"her") + LINES[2]
    read, damage = read_lines(data)
    assert len(read) == 1
    assert damage is not None
    assert not damage.torn_tail
    assert damage.line == 2


def test_a_tail_of_zeros_is_torn() -> None:
    read, damage = read_lines(DATA + b"\0" * 100)
    assert len(read) == 3
    assert damage is not None
    assert damage.torn_tail


@given(some.integers(0, len(LINES[0]) - 2), some.integers(1, 255))
def test_one_changed_byte_is_noticed(place: int, change: int) -> None:
    line = bytearray(LINES[0])
    line[place] ^= change
    with pytest.raises((DamagedLine, ValueError)):
        decode_line(bytes(line))


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        encode_line(ev.Entry(1, 1, float("nan"), ev.RunResumed("me")))
