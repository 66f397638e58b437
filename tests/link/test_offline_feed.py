import asyncio
import json
from pathlib import Path

import pytest
from fake_agent import FakeAgent

from ddconsole.core.events import RunEnded, Warned
from ddconsole.core.wire import LogPiece
from ddconsole.link.client import AgentError, LinkPhase
from ddconsole.link.feed import RunFeed
from ddconsole.link.offline_feed import OfflineRunFeed, moment


@pytest.fixture
def directory(tmp_path: Path, agent: FakeAgent) -> Path:
    agent.append(Warned("one"), RunEnded("complete"))
    (tmp_path / "journal.jsonl").write_bytes(b"".join(agent.lines))
    return tmp_path


async def test_a_finished_run_is_shown_from_disk(directory: Path) -> None:
    feed: RunFeed = OfflineRunFeed(directory)
    assert (feed.run, feed.host, feed.state.outcome) == ("r", "fake", "complete")
    assert (feed.link.phase, feed.link.detail) == (LinkPhase.OFFLINE, f"read from {directory}")
    assert feed.now() == feed.state.at == 1007.0


async def test_commands_are_refused_with_the_way_to_give_them(directory: Path) -> None:
    answer = await OfflineRunFeed(directory).command("stop", ["c001"])
    assert not answer.taken
    assert "ddconsole attach r --host fake asks its host" in answer.text


@pytest.mark.parametrize(
    ("damage", "what"), [(b'{"crc":"0000', "ends in the middle of line 8"), (b"x\ny\n", "is damaged at line 8")]
)
async def test_what_stands_before_damage_is_shown_and_the_damage_told(
    directory: Path, damage: bytes, what: str
) -> None:
    with (directory / "journal.jsonl").open("ab") as journal:
        journal.write(damage)
    feed = OfflineRunFeed(directory)
    assert feed.state.seq == 7
    assert what in feed.link.detail


async def test_the_end_of_a_log_is_given_once(directory: Path) -> None:
    log = directory / "launches" / "3" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(b"line %d\n" % n for n in range(2000)) + b"\xff unfinished")
    feed = OfflineRunFeed(directory)
    pieces: list[LogPiece] = []
    feed.follow_log(3, pieces.append)
    feed.follow_log(4, pieces.append)
    feed.follow_log(None, pieces.append)
    await asyncio.sleep(0)
    first, second = pieces
    assert (len(first.lines), first.lines[0], first.lines[-1]) == (500, "line 1501", "� unfinished")
    assert (first.dropped, first.offset) == (1501, log.stat().st_size)
    assert second.lines == ()
    assert await feed.read_log(3, 5, 6) == b"0\nline"
    with pytest.raises(AgentError, match="No such file"):
        await feed.read_log(4, 0, 10)


async def test_telemetry_that_cannot_be_read_is_left_out(directory: Path) -> None:
    (directory / "telemetry.jsonl").write_text('{"at": 1}\ntorn')
    assert OfflineRunFeed(directory).host_state is None
    reading = ["x", 1.0, "test"]
    host = {"at": 2.0, "gpus": [], "nodes": [], "pairs": [], "hostname": reading}
    (directory / "telemetry.jsonl").write_text(f"{json.dumps(host)}\n")
    state = OfflineRunFeed(directory).host_state
    assert state is not None
    assert state.hostname.value == "x"


async def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"journal\.jsonl: No such file"):
        OfflineRunFeed(tmp_path)


async def test_a_run_whose_host_is_lost_says_how_old_the_copy_is_and_as_of_which_entry(directory: Path) -> None:
    journal = directory / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:6]))
    (directory / "mirror.json").write_text('{"heard": 1790000000.0}')
    feed = OfflineRunFeed(directory, lost="fake: connect: Connection refused")
    assert feed.link.phase is LinkPhase.OFFLINE
    assert feed.link.heard == 1790000000.0
    assert feed.link.detail.startswith("fake lost; the copy here is ")
    assert f" old ({moment(1790000000.0)}, entry 6); " in feed.link.detail
    assert feed.link.lost == "fake: connect: Connection refused"
    assert "Connection refused" in feed.link.detail
    (directory / "mirror.json").write_text("torn")
    assert OfflineRunFeed(directory, lost="x").link.heard == 1006.0


async def test_a_log_that_was_not_copied_whole_says_where_the_copy_ends(directory: Path) -> None:
    part = directory / "launches" / "3" / "server.log.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"one\ntwo\nthr")
    feed = OfflineRunFeed(directory)
    pieces: list[LogPiece] = []
    feed.follow_log(3, pieces.append)
    await asyncio.sleep(0)
    assert pieces[0].lines[:3] == ("one", "two", "thr")
    assert "the copy of this log ends here, after 11 bytes" in pieces[0].lines[3]
    assert await feed.read_log(3, 4, 3) == b"two"
