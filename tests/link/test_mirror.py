import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_agent import RUN, FakeAgent
from six_hours import LOG, six_hours
from waiting import until

from ddconsole.core.events import (
    AttemptDone,
    AttemptStarted,
    LaunchGone,
    LaunchPlanned,
    LaunchReady,
    LaunchStarting,
    LaunchStopping,
    RunEnded,
    Warned,
)
from ddconsole.core.journal_line import read_lines
from ddconsole.link.background_pace import LARGEST, BackgroundPace
from ddconsole.link.client import LinkPhase
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.journal_copy import CopyHeld, JournalCopy, last_heard
from ddconsole.link.mirror import Mirror


def mirror_of(client: HttpAgentClient, here: Path) -> Mirror:
    return Mirror(client, RUN, here, pace=BackgroundPace(1e9), poll=0.05)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "logs" / RUN


@pytest.fixture
async def mirror(client: HttpAgentClient, here: Path) -> AsyncIterator[Mirror]:
    one = mirror_of(client, here)
    yield one
    await one.close()


def begin_launch(agent: FakeAgent) -> None:
    agent.append(LaunchPlanned(1, "d01", 1), LaunchStarting(1, "process started", pid=1, port=2), LaunchReady(1))


def finish_cell(agent: FakeAgent, data: bytes, sha256: str = "", cell: str = "c001") -> None:
    agent.files[f"cells/{cell}/1.json"] = data
    agent.append(
        AttemptStarted(cell, 1, 1, 1, 0),
        AttemptDone(cell, 1, 1, sha256 or hashlib.sha256(data).hexdigest(), "f", {}),
    )


def end_launch(agent: FakeAgent) -> None:
    agent.append(LaunchStopping(1, "asked", 9.0), LaunchGone(1))


async def test_a_finished_cell_is_here_as_soon_as_it_is_finished(mirror: Mirror, agent: FakeAgent, here: Path) -> None:
    mirror.start()
    await until(lambda: mirror.seq == 5)
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    begin_launch(agent)
    finish_cell(agent, b"{}")
    await until((here / "cells/c001/1.json").exists)
    assert (here / "cells/c001/1.json").read_bytes() == b"{}"
    await until(lambda: mirror.seq == 10)
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    assert not list((here / "cells").rglob("*.part"))


async def test_logs_and_telemetry_come_while_they_grow_and_get_their_names_when_they_are_whole(
    mirror: Mirror, agent: FakeAgent, here: Path
) -> None:
    log, part = here / LOG, here / f"{LOG}.part"
    agent.growing = {LOG, "telemetry.jsonl"}
    agent.logs[1] = b"loading\n"
    agent.files["telemetry.jsonl"] = b"{}\n"
    begin_launch(agent)
    mirror.start()
    await until(lambda: part.exists() and part.read_bytes() == b"loading\n")
    agent.logs[1] += b"ready\n" * 300_000
    agent.files["telemetry.jsonl"] += b"{}\n"
    await until(lambda: part.stat().st_size == len(agent.logs[1]))
    await until(lambda: (here / "telemetry.jsonl.part").read_bytes() == b"{}\n{}\n")
    assert not log.exists()
    agent.growing = {"telemetry.jsonl"}
    end_launch(agent)
    await until(log.exists)
    assert log.read_bytes() == agent.logs[1]
    agent.growing = set()
    agent.files["plan.yaml"] = b"name: p\n"
    agent.append(RunEnded("complete"))
    await until((here / "telemetry.jsonl").exists)
    await mirror.copy_files()
    assert (here / "plan.yaml").read_bytes() == b"name: p\n"
    assert not list(here.rglob("*.part"))
    assert mirror.problems == []


async def test_it_goes_on_where_an_earlier_one_ended(client: HttpAgentClient, agent: FakeAgent, here: Path) -> None:
    agent.append(*(Warned(f"{n}") for n in range(20)))
    (here / "launches/1").mkdir(parents=True)
    (here / f"{LOG}.part").write_bytes(b"012")
    (here / "journal.jsonl").write_bytes(b"".join(agent.lines[:10]) + agent.lines[10][:30])
    agent.logs[1] = b"0123456789"
    begin_launch(agent)
    end_launch(agent)
    mirror = mirror_of(client, here)
    mirror.start()
    await until(lambda: mirror.seq == 30)
    await until((here / LOG).exists)
    assert agent.journal_requests == [10]
    assert agent.piece_requests == [(LOG, 3)]
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    assert (here / LOG).read_bytes() == b"0123456789"
    await mirror.close()
    again = mirror_of(client, here)
    await again.copy_files()
    assert agent.piece_requests == [(LOG, 3)]
    await again.close()


async def test_a_file_with_the_wrong_hash_is_not_taken(mirror: Mirror, agent: FakeAgent, here: Path) -> None:
    mirror.start()
    agent.hashes["cells/c001/1.json"] = "ab" * 32
    begin_launch(agent)
    finish_cell(agent, b"{}", sha256="ab" * 32)
    await until(lambda: mirror.problems)
    assert "cells/c001/1.json: its content is not what its hash says" in mirror.problems[0]
    assert not list((here / "cells").rglob("*json*"))


async def test_a_log_that_began_otherwise_here_is_fetched_anew(mirror: Mirror, agent: FakeAgent, here: Path) -> None:
    (here / "launches/1").mkdir(parents=True)
    (here / LOG).write_bytes(b"of another start")
    agent.logs[1] = b"the log of this launch"
    await mirror.copy_files()
    assert (here / LOG).read_bytes() == b"the log of this launch"
    assert mirror.problems == []


@pytest.mark.parametrize("path", ["../out.json", "/etc/out.json", "cells/../../../out", "link/out"])
async def test_names_that_lead_elsewhere_are_not_followed(
    mirror: Mirror, agent: FakeAgent, tmp_path: Path, here: Path, path: str
) -> None:
    here.mkdir(parents=True)
    (here / "link").symlink_to(tmp_path)
    agent.files[path] = b"x"
    await mirror.copy_files()
    assert mirror.problems == [f"E302 {path!r} leaves the run directory; it was not copied"]
    assert not list(tmp_path.rglob("out*"))


# --- the journal


async def test_the_screens_read_the_journal_from_the_mirror_and_it_crosses_the_link_once(
    mirror: Mirror, client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    here.mkdir(parents=True)
    (here / "journal.jsonl").write_bytes(b"".join(agent.lines[:3]))
    feed = LiveRunFeed(client, RUN, journal=mirror.journal)
    feed.start()
    mirror.start(reads_journal=False)
    await until(lambda: feed.state.seq == 5)
    agent.append(Warned("new"))
    await until(lambda: feed.state.seq == 6)
    assert agent.journal_requests == [3]
    assert feed.state.created is not None
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    assert last_heard(here) is not None
    await feed.close()


async def test_a_gap_on_the_way_is_asked_for_again_and_not_written(
    mirror: Mirror, client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    agent.skip_seq = 7
    feed = LiveRunFeed(client, RUN, journal=mirror.journal)
    feed.start()
    await until(lambda: feed.state.seq == 5)
    agent.append(*(Warned(f"{n}") for n in range(4)))
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
    feed.retry_now()
    await until(lambda: feed.state.seq == 9)
    assert [one.text for one in feed.state.warnings] == ["0", "1", "2", "3"]
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    await feed.close()


async def test_a_run_of_the_same_name_elsewhere_is_neither_mixed_in_nor_overwritten(
    mirror: Mirror, client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    other = FakeAgent()
    other.append(Warned("of another host"))
    agent.append(Warned("one"), Warned("two"))
    here.mkdir(parents=True)
    (here / "journal.jsonl").write_bytes(b"".join(other.lines))
    feed = LiveRunFeed(client, RUN, journal=mirror.journal)
    feed.start()
    mirror.start(reads_journal=False)
    await until(lambda: feed.state.seq == 7)
    assert [one.text for one in feed.state.warnings] == ["one", "two"]
    assert "holds another run of that name; it is left alone" in mirror.problems[0]
    assert (here / "journal.jsonl").read_bytes() == b"".join(other.lines)
    assert [one.name for one in here.iterdir() if not one.name.startswith(".")] == ["journal.jsonl"]
    await feed.close()


async def test_a_second_console_here_follows_without_copying(
    mirror: Mirror, client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    mirror.start()
    await until(lambda: mirror.seq == 5)
    second = mirror_of(client, here)
    feed = LiveRunFeed(client, RUN, journal=second.journal)
    feed.start()
    second.start(reads_journal=False)
    agent.append(Warned("new"))
    await until(lambda: feed.state.seq == 6 and mirror.seq == 6)
    assert "is written by another process of this machine" in second.problems[0]
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    await feed.close()
    await second.close()


def test_damage_here_is_replaced_by_what_the_host_sends(agent: FakeAgent, here: Path) -> None:
    here.mkdir(parents=True)
    journal = here / "journal.jsonl"
    journal.write_bytes(agent.lines[0] + agent.lines[1][:20] + b"#" + agent.lines[1][21:] + agent.lines[2])
    copy = JournalCopy(here)
    assert copy.seq == 1
    assert len(journal.read_bytes()) > len(agent.lines[0])
    entries, _ = read_lines(b"".join(agent.lines))
    for line, entry in zip(agent.lines[1:], entries[1:], strict=True):
        assert copy.append(line.rstrip(b"\n"), entry)
    assert not copy.append(agent.lines[2].rstrip(b"\n"), entries[2])
    copy.close()
    assert journal.read_bytes() == b"".join(agent.lines)


def test_a_journal_that_somebody_else_writes_is_not_continued(agent: FakeAgent, here: Path) -> None:
    copy = JournalCopy(here)
    entries, _ = read_lines(b"".join(agent.lines))
    (here / "journal.jsonl").write_bytes(b"mine\n")
    with pytest.raises(CopyHeld, match="was changed by somebody else"):
        copy.append(agent.lines[0].rstrip(b"\n"), entries[0])
    assert (here / "journal.jsonl").read_bytes() == b"mine\n"
    copy.close()


# --- six hours away


async def test_after_six_hours_the_journal_comes_first_and_no_telemetry_is_replayed(
    client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    known = len(agent.lines)
    here.mkdir(parents=True)
    (here / "journal.jsonl").write_bytes(b"".join(agent.lines))
    six_hours(agent, megabytes=10)
    pace = BackgroundPace()
    mirror = Mirror(client, RUN, here, pace=pace)
    feed = LiveRunFeed(client, RUN, journal=mirror.journal)
    feed.start()
    mirror.start(reads_journal=False)
    await until(lambda: feed.state.seq == len(agent.lines))
    assert agent.journal_requests == [known]
    # By then at most one piece was asked for, and it is a small one.
    assert len(agent.piece_requests) <= 1
    assert pace.sent <= 64 * 1024
    assert feed.host_history == ()
    assert [one for one in agent.live_requests if "from" in one] == []
    await feed.close()
    await mirror.close()


async def test_what_can_wait_comes_one_piece_at_a_time_and_a_finished_cell_before_it(
    client: HttpAgentClient, agent: FakeAgent, here: Path
) -> None:
    six_hours(agent, megabytes=10)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = BackgroundPace(256 * 1024, sleep)
    mirror = Mirror(client, RUN, here, pace=pace)
    began = time.monotonic()
    mirror.start()
    await until(lambda: len(agent.piece_requests) >= 4)
    before = len(agent.piece_requests)
    finish_cell(agent, b"{}")
    await until((here / "cells/c001/1.json").exists)
    await mirror.copy_files()
    asked = [path for path, _ in agent.piece_requests]
    assert asked.index("cells/c001/1.json") <= before + 2
    assert asked.index("cells/c001/1.json") < asked.index("telemetry.jsonl")
    content = len(agent.logs[1]) + len(agent.files["telemetry.jsonl"])
    assert (here / f"{LOG}.part").stat().st_size == len(agent.logs[1])
    # Packed to a third at most, never faster than the rate, in pieces that a command does not wait behind for long.
    assert pace.sent < content / 3
    assert time.monotonic() - began + sum(slept) >= pace.sent / (256 * 1024)
    assert len(agent.piece_requests) >= content / LARGEST
    await mirror.close()


async def test_a_piece_pauses_as_long_as_it_took_and_grows_to_what_the_link_takes() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = BackgroundPace(100_000, sleep)
    pace.begin()
    await pace.rest(50_000, 500_000)
    assert slept[-1] == pytest.approx(0.5, abs=0.05)
    assert pace.limit == pytest.approx(491_520, abs=1)
    pace._began -= 3.0
    await pace.rest(50_000, 50_000)
    assert slept[-1] >= 3.0
    assert pace.limit == 64 * 1024
