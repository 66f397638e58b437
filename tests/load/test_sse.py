import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddconsole.load.sse import EventSplitter


def split(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [payload for piece in pieces for payload in splitter.feed(piece)]


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_each_newline_of_the_standard_ends_a_line(newline: bytes) -> None:
    stream = newline.join([b"data: one", b"", b"event: x", b"data:two", b"data: three", b"", b""])
    assert split(stream) == [b"one", b"two\nthree"]


def test_comments_other_fields_and_events_without_data_are_passed_over() -> None:
    assert split(b": ping\n\nid: 4\nretry: 10\n\nevent: x\n\ndatabase: 1\n\ndata: kept\n\n") == [b"kept"]


def test_empty_data_is_an_event_and_only_one_blank_is_dropped() -> None:
    assert split(b"data\n\ndata:\n\ndata:  two blanks \n\n") == [b"", b"", b" two blanks "]


def test_a_byte_order_mark_before_the_first_line_is_dropped() -> None:
    assert split(b"\xef\xbb", b"\xbfdata: one\n\n") == [b"one"]


def test_an_open_event_comes_with_the_end_of_the_stream_only() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: [DO") == []
    assert splitter.feed(b"NE]") == []
    assert splitter.close() == [b"[DONE]"]
    assert splitter.close() == []


_LINES = st.sampled_from(
    [
        b"data: a",
        b"data:",
        b"data",
        b"data: \xc3\xa9",
        b": comment",
        b"event: x",
        b"",
        b"",
        b"nonsense",
        b"data: data: b",
    ]
)
_NEWLINES = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(_LINES, _NEWLINES), max_size=30), st.lists(st.integers(0, 400), max_size=40))
def test_where_the_bytes_are_cut_changes_nothing(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(line + newline for line, newline in lines)
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[begin:end] for begin, end in itertools.pairwise(places)]
    assert split(*pieces) == split(stream)
    assert split(*[stream[at : at + 1] for at in range(len(stream))]) == split(stream)


def test_a_line_of_megabytes_in_small_pieces_is_one_event() -> None:
    payload = b"x" * (4 * 1024 * 1024)
    stream = b"data: " + payload + b"\n\n"
    pieces = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert split(*pieces) == [payload]
