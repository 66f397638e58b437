import pytest

from screens.log_buffer import LONGEST_KEPT, LogBuffer, Severity, severity_of


def filled(count: int, **caps: int) -> LogBuffer:
    buffer = LogBuffer(**caps)
    buffer.add([f"line {number}" for number in range(1, count + 1)])
    return buffer


def test_line_numbers_are_absolute_and_pruning_moves_the_origin() -> None:
    buffer = filled(1000, most_lines=100)
    assert buffer.last == 1000
    assert buffer.text(1000) == "line 1000"
    assert buffer.first == 901
    assert buffer.text(buffer.first) == "line 901"
    assert buffer.pruned == 900


def test_memory_is_capped_by_characters_too() -> None:
    buffer = LogBuffer(most_lines=10_000, most_characters=50_000)
    for _ in range(200):
        buffer.add(["x" * 1000])
    assert sum(len(buffer.text(n)) for n in range(buffer.first, buffer.last + 1)) <= 50_000
    assert buffer.last == 200


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("\rshards 50%\rshards 100%", "shards 100%"),
        ("progress\r", "progress"),
        ("\x1b[31mred\x1b[0m", "^[[31mred^[[0m"),
        ("[red]not markup[/red]", "[red]not markup[/red]"),
        ("\udcff\udcfe bytes", r"\udcff\udcfe bytes"),
        ("tab\there", "tab    here"),
        ("", ""),
    ],
)
def test_what_a_line_becomes(raw: str, kept: str) -> None:
    buffer = LogBuffer()
    buffer.add([raw])
    assert buffer.text(1) == kept


def test_a_line_of_90_000_characters_is_cropped_and_says_by_how_much() -> None:
    buffer = LogBuffer()
    buffer.add(["y" * 90_000, "next"])
    assert len(buffer.text(1)) < LONGEST_KEPT + 60
    assert buffer.text(1).endswith("(+86,000 characters)")
    assert buffer.text(2) == "next"


def test_lines_that_were_left_out_are_said_where_they_are_missing() -> None:
    buffer = LogBuffer()
    buffer.add(["a"])
    buffer.add(["b"], dropped=1200)
    assert buffer.dropped == 1200
    assert buffer.severity(2) is Severity.GAP
    assert "1,200" in buffer.text(2)
    assert buffer.text(3) == "b"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("[2026-04-12 04:10:41 TP0] WARNING: overlap scheduler is off", Severity.WARNING),
        ("Traceback (most recent call last):", Severity.ERROR),
        ("torch.OutOfMemoryError: CUDA out of memory.", Severity.ERROR),
        ("launch_server.py: error: unrecognized arguments: --x", Severity.ERROR),
        ("[2026-04-12 04:10:41] ERROR: x", Severity.ERROR),
        ("Decode batch, #running-req: 1, accept len: 5.62", Severity.PLAIN),
        ("0 errors so far", Severity.PLAIN),
        (("z" * 90_000) + " ERROR", Severity.PLAIN),
    ],
)
def test_severity_is_found_by_words_at_the_beginning(line: str, severity: Severity) -> None:
    assert severity_of(line) is severity


def test_search_goes_around_in_both_directions() -> None:
    buffer = LogBuffer()
    buffer.add(["alpha", "Beta", "gamma", "beta two"])
    assert buffer.find("beta", 0) == 2
    assert buffer.find("beta", 2) == 4
    assert buffer.find("beta", 4) == 2
    assert buffer.find("beta", 2, -1) == 4
    assert buffer.find("Beta", 2) == 2
    assert buffer.find("none", 1) is None
    assert buffer.find("", 1) is None
    assert LogBuffer().find("x", 0) is None


def test_errors_are_found_in_order_and_once_around() -> None:
    buffer = LogBuffer()
    buffer.add(["ok", "ERROR one", "ok", "ERROR two"])
    assert [buffer.find_error(0), buffer.find_error(2), buffer.find_error(4)] == [2, 4, 2]
    assert filled(3).find_error(0) is None


def test_clearing_begins_anew() -> None:
    buffer = filled(10)
    buffer.clear()
    assert (len(buffer), buffer.first, buffer.last) == (0, 1, 0)
