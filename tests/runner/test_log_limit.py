"""A log that floods: its middle goes back to the disk, under a server that goes on writing to it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from ddconsole.runner.log_limit import LogLimit
from ddconsole.runner.log_tail import LogTail, last_lines

MIB = 1024**2
FLOOD = """
import sys, time
n = 0
while True:
    for n in range(n, n + 5000):
        sys.stdout.write(f"line {n:09d} of a server that floods its log\\n")
    n += 1
    sys.stdout.flush()
    time.sleep(0.005)
"""


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Path]:
    """A log that a process appends to as fast as it can."""
    path = tmp_path / "server.log"
    path.write_text("how the server started\n")
    with path.open("ab", buffering=0) as log:
        process = subprocess.Popen([sys.executable, "-c", FLOOD], stdout=log)
    yield path
    process.kill()
    process.wait()


async def test_a_flooded_log_keeps_its_beginning_and_its_end_and_says_what_is_left_out(flooded: Path) -> None:
    limit = LogLimit(flooded, largest=16 * MIB, first=1 * MIB, last=4 * MIB)
    await until(lambda: flooded.stat().st_size > 24 * MIB, 30, "for the flood")
    limit.look()
    size = flooded.stat().st_size
    # What came while the middle went is not counted.
    assert on_disk(flooded) < 16 * MIB + (size - 24 * MIB)
    assert size >= 24 * MIB
    await until(lambda: flooded.stat().st_size > size + MIB, 30, "for what comes behind")
    lines = last_lines(flooded, 3)
    assert all(line.startswith("line ") for line in lines[:-1])
    with flooded.open("rb") as log:
        assert log.readline() == b"how the server started\n"
        head = log.read(MIB + 8192)
    assert " GiB of the log are left out here: it flooded" in head.decode(errors="replace")
    await until(lambda: on_disk(flooded) > 16 * MIB, 30, "for more of it")
    limit.look()
    assert on_disk(flooded) < flooded.stat().st_size


async def test_who_follows_the_end_of_a_flooded_log_notices_nothing(flooded: Path) -> None:
    await until(lambda: flooded.stat().st_size > 24 * MIB, 30, "for the flood")
    tail = LogTail(flooded, flooded.stat().st_size)
    tail.read_partial_line()
    offset = tail.offset
    await until(lambda: flooded.stat().st_size > offset + MIB, 30, "for more of the flood")
    first = tail.read()
    LogLimit(flooded, largest=16 * MIB, first=1 * MIB, last=12 * MIB).look()
    numbers = [int(line.split()[1]) for line in [*first, *tail.read(), *tail.read()]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_log_of_a_usual_size_and_one_that_is_not_there_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    LogLimit(path).look()
    path.write_bytes(os.urandom(64 * 1024))
    before = path.read_bytes()
    LogLimit(path, largest=MIB, first=4096, last=4096).look()
    LogLimit(path, largest=4096, first=60 * 1024, last=60 * 1024).look()
    assert path.read_bytes() == before


def test_a_disk_that_takes_nothing_back_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("ddconsole.runner.log_limit._punch", refused)
    path = tmp_path / "server.log"
    path.write_bytes(b"x" * 64 * 1024)
    limit = LogLimit(path, largest=4096, first=4096, last=4096)
    limit.look()
    limit.look()
    assert [one.getMessage() for one in caplog.records] == [
        "the log's middle cannot be given back to the disk: [Errno 95] Operation not supported"
    ]
    assert path.read_bytes() == b"x" * 64 * 1024
