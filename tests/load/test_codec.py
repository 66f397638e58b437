import json
from typing import TYPE_CHECKING

import pytest

from ddconsole.core.records import Acceptance, CellProgress, RequestOutcome, RequestRecord, TokenSource
from ddconsole.load.codec import (
    Cancel,
    Hello,
    LineError,
    Message,
    Order,
    Quit,
    message_line,
    message_of_line,
    order_line,
    order_of_line,
)
from ddconsole.load.task import LoadReport, Script, Turn

if TYPE_CHECKING:
    from tests.load.conftest import MakeTask

RECORD = RequestRecord(
    index=4,
    repetition=1,
    prompt="build/one",
    turn=1,
    stream=3,
    sent=1.5,
    first_text=1.75,
    last_text=2.5,
    end=2.5,
    chunks=3,
    chunk_gaps_us=(250_000, 500_000),
    prompt_tokens=10,
    output_tokens=9,
    token_source=TokenSource.META_INFO,
    cached_tokens=None,
    reasoning_tokens=0,
    finish_reason="length",
    outcome=RequestOutcome.OK,
    error=None,
    text_sha256="00",
    acceptance=Acceptance(9, 3, 12, 6, "request", engine_length=2.9),
    text="line\nline \u2028 \U0001f600",
)


@pytest.mark.parametrize(
    "message",
    [
        Hello(pid=7),
        CellProgress("c001", 2, 3, 9, 1, 4, 120.5, 1796009733.2),
        RECORD,
        LoadReport(0.5, 10.0, 0.003, True, 2, 1, ("a note",), 3.97),
    ],
)
def test_messages_come_back_as_they_went(message: Message) -> None:
    line = message_line(message)
    assert line.count(b"\n") == 1
    assert message_of_line(line) == message


def test_orders_come_back_as_they_went(make_task: "MakeTask") -> None:
    script = Script("s", "system", (Turn("t", "u", "a"),))
    orders: list[Order] = [make_task(), make_task(kind="conversation", script=script), Cancel("c001", 3), Quit()]
    for order in orders:
        assert order_of_line(order_line(order)) == order


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert message_of_line(
        b'{"report":{"cpu_seconds":1,"wall_seconds":2,"worst_loop_lag":0,"cancelled":false,'
        b'"warmup_requests":0,"warmup_failed":0,"new":1}}'
    ) == LoadReport(1, 2, 0, False, 0, 0)
    newer = json.loads(message_line(RECORD))
    newer["record"]["new"] = 1
    assert message_of_line(json.dumps(newer).encode()) == RECORD


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{oops", "not JSON"),
        (b"[]", "not an object with one key"),
        (b'{"a":1,"b":2}', "not an object with one key"),
        (b'{"launch":1}', "'launch' is not one of task, cancel, quit"),
        (b'{"cancel":{"cell":"c001"}}', "cancel: KeyError 'attempt'"),
        (b'{"task":{"cell":"c001"}}', "task: KeyError"),
        (b'{"task":null}', "task: "),
    ],
)
def test_a_line_that_is_none_of_ours_is_named(line: bytes, said: str) -> None:
    with pytest.raises(LineError, match=said):
        order_of_line(line)
