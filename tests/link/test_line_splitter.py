from hypothesis import given
from hypothesis import strategies as some

from ddconsole.link.line_splitter import LineSplitter


@given(some.lists(some.binary(max_size=20)), some.lists(some.integers(1, 7), min_size=1))
def test_lines_come_out_whole_however_they_were_cut(lines: list[bytes], cuts: list[int]) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter, found, place = LineSplitter(), [], 0
    while place < len(data):
        size = cuts[place % len(cuts)]
        found += splitter.feed(data[place : place + size])
        place += size
    assert found == lines
    assert splitter.unfinished == b"rest"


def test_a_line_far_above_the_usual_limits_is_one_line() -> None:
    splitter = LineSplitter()
    for _ in range(1000):
        assert splitter.feed(b"x" * 4096) == []
    assert splitter.feed(b"\n") == [b"x" * 4_096_000]
