import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_agent import RUN, FakeAgent
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
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror, needs_mirror


@pytest.fixture
async def mirror(client: HttpAgentClient, tmp_path: Path) -> AsyncIterator[Mirror]:
    one = Mirror(client, RUN, tmp_path / "logs" / RUN)
    yield one
    await one.close()


def finish_cell(agent: FakeAgent, data: bytes, sha256: str = "") -> None:
    agent.files["cells/c001/1.json"] = data
    agent.append(
        LaunchPlanned(1, "d01", 1),
        LaunchStarting(1, "process started", pid=1, port=2),
        LaunchReady(1),
        AttemptStarted("c001", 1, 1, 1, 0),
        AttemptDone("c001", 1, 1, sha256 or hashlib.sha256(data).hexdigest(), "f", {}),
    )


async def test_a_finished_cell_is_here_as_soon_as_it_is_finished(
    mirror: Mirror, agent: FakeAgent, tmp_path: Path
) -> None:
    here = tmp_path / "logs" / RUN
    mirror.start()
    await until(lambda: mirror.seq == 5)
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    finish_cell(agent, b"{}")
    await until((here / "cells/c001/1.json").exists)
    assert (here / "cells/c001/1.json").read_bytes() == b"{}"
    await until(lambda: mirror.seq == 10)
    assert (here / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    assert not list(here.rglob("*.part"))


async def test_logs_come_when_their_launch_is_gone_and_all_files_when_the_run_ends(
    mirror: Mirror, agent: FakeAgent, tmp_path: Path
) -> None:
    here = tmp_path / "logs" / RUN
    mirror.start()
    finish_cell(agent, b"{}")
    agent.logs[1] = b"x" * 3_000_000
    agent.append(LaunchStopping(1, "asked", 9.0), LaunchGone(1))
    log = here / "launches/1/server.log"
    await until(lambda: log.exists() and log.stat().st_size == 3_000_000)
    agent.files["plan.yaml"] = b"name: p\n"
    agent.append(RunEnded("complete"))
    await until((here / "plan.yaml").exists)
    assert mirror.problems == []


async def test_it_goes_on_where_an_earlier_one_ended(client: HttpAgentClient, agent: FakeAgent, tmp_path: Path) -> None:
    agent.append(*(Warned(f"{n}") for n in range(20)))
    (tmp_path / "launches/1").mkdir(parents=True)
    (tmp_path / "launches/1/server.log").write_bytes(b"012")
    (tmp_path / "journal.jsonl").write_bytes(b"".join(agent.lines[:10]) + agent.lines[10][:30])
    agent.logs[1] = b"0123456789"
    finish_cell(agent, b"{}")
    mirror = Mirror(client, RUN, tmp_path)
    mirror.start()
    await until(lambda: mirror.seq == 30)
    await mirror.copy_files()
    assert agent.journal_requests == [10]
    assert (tmp_path / "journal.jsonl").read_bytes() == b"".join(agent.lines)
    assert (tmp_path / "launches/1/server.log").read_bytes() == b"0123456789"
    await mirror.close()


async def test_a_file_with_the_wrong_hash_is_not_taken(mirror: Mirror, agent: FakeAgent, tmp_path: Path) -> None:
    mirror.start()
    agent.hashes["cells/c001/1.json"] = "ab" * 32
    finish_cell(agent, b"{}", sha256="ab" * 32)
    await until(lambda: mirror.problems)
    assert "cells/c001/1.json: its content is not what its hash says" in mirror.problems[0]
    assert not (tmp_path / "logs" / RUN / "cells/c001/1.json").exists()


@pytest.mark.parametrize("path", ["../out.json", "/etc/out.json", "cells/../../../out", "link/out"])
async def test_names_that_lead_elsewhere_are_not_followed(
    mirror: Mirror, agent: FakeAgent, tmp_path: Path, path: str
) -> None:
    here = tmp_path / "logs" / RUN
    here.mkdir(parents=True)
    (here / "link").symlink_to(tmp_path)
    agent.files[path] = b"x"
    await mirror.copy_files()
    assert mirror.problems == [f"E302 {path!r} leaves the run directory; it was not copied"]
    assert not list(tmp_path.rglob("out*"))


def test_a_run_in_the_very_folder_needs_no_copy(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "r")
    assert not needs_mirror("local", tmp_path / "link", tmp_path / "r")
    assert needs_mirror("local", tmp_path / "elsewhere", tmp_path / "r")
    assert needs_mirror("ct200", None, tmp_path / "r")
