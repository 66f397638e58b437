"""Bringing a model to where the plan wants it: real files, real processes, a real file system that is too small."""

import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from staged import ended, model, names, safetensors, staging_of, submission, until

from ddconsole.agent import staging as staging_module
from ddconsole.agent.stage_copy import StageProblem, StageStopped, copy_file
from ddconsole.agent.staging import RUNNING, Staging
from ddconsole.preflight.cgroup import MemoryLimit
from ddconsole.preflight.check import Outcome, Verdict
from ddconsole.preflight.checks import model_manifest
from ddconsole.preflight.facts import Facts, PreflightPlan
from ddconsole.preflight.local_machine import LocalMachine


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return staging_of(tmp_path)


async def verdict_on(to: Path, staging: Staging) -> Verdict:
    plan = PreflightPlan(run_directory="/r", model=str(to), manifests=str(staging._manifests))
    return await model_manifest.CHECK.run(Facts(plan=plan, machine=LocalMachine(), host=None))


async def test_model_and_draft_from_a_folder_with_their_manifest(staging: Staging, tmp_path: Path) -> None:
    model(tmp_path / "data/big", 64 << 20)
    model(tmp_path / "data/small", 1000)
    to, draft = tmp_path / "shm/big", tmp_path / "shm/small"

    begun = staging.begin(submission(to, str(tmp_path / "data"), draft))
    seen: set[int] = set()

    def ended_or_seen() -> bool:
        seen.add(staging.status.done)
        return staging.status.phase not in RUNNING

    await until(ended_or_seen)
    status = staging.status

    assert begun.phase == "looking"
    assert status.phase == "done", status.problem
    assert len(seen) > 2, "progress is told on the way"
    assert (to / "model.safetensors").read_bytes() == (tmp_path / "data/big/model.safetensors").read_bytes()
    assert names(to) == ["config.json", "model.safetensors"], "neither parts nor hidden files"
    assert (draft / "config.json").exists()
    assert (await verdict_on(to, staging)).outcome is Outcome.PASS


async def test_other_bytes_of_the_same_size_are_seen(staging: Staging, tmp_path: Path) -> None:
    model(tmp_path / "data/m", 1000)
    to = tmp_path / "shm/m"
    staging.begin(submission(to, str(tmp_path / "data")))
    await ended(staging)
    (to / "model.safetensors").write_bytes(safetensors(1000, b"\x02"))

    verdict = await verdict_on(to, staging)

    assert verdict.outcome is Outcome.FAIL
    assert "right size and other bytes" in verdict.observed


async def test_copy_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    source, to = tmp_path / "source", tmp_path / "to"
    source.write_bytes(os.urandom(40 << 20))
    stop = threading.Event()
    told: list[int] = []

    def interrupt(there: int) -> None:
        if there >= 16 << 20:
            stop.set()

    with pytest.raises(StageStopped):
        copy_file(source, to, "", interrupt, stop)
    assert not to.exists(), "what is not whole has not its name"
    size, digest = copy_file(source, to, "", told.append, threading.Event())

    assert told[0] >= 16 << 20, "what was there was not copied again"
    assert to.read_bytes() == source.read_bytes()
    assert size == 40 << 20
    assert digest == hashlib.sha256(source.read_bytes()).hexdigest()


async def test_source_that_changed_meanwhile_is_copied_from_its_beginning(tmp_path: Path) -> None:
    source, to = tmp_path / "source", tmp_path / "to"
    source.write_bytes(b"a" * (20 << 20))
    stop = threading.Event()
    with pytest.raises(StageStopped):
        copy_file(source, to, "", lambda there: stop.set() if there else None, stop)
    source.write_bytes(b"b" * (20 << 20))

    copy_file(source, to, "", lambda _: None, threading.Event())

    assert to.read_bytes() == b"b" * (20 << 20)


async def test_staging_is_stopped_and_begun_again(staging: Staging, tmp_path: Path) -> None:
    model(tmp_path / "data/m", 120 << 20)
    to = tmp_path / "shm/m"
    order = submission(to, str(tmp_path / "data"))

    staging.begin(order)
    await until(lambda: staging.status.done >= 8 << 20 or staging.status.phase not in RUNNING)
    await staging.stop()
    stopped = staging.status
    staging.begin(order)
    done = await ended(staging)

    assert (stopped.phase, stopped.do) == ("stopped", "stage again to go on")
    assert done.phase == "done", done.problem


async def test_wrong_hash_is_refused_and_nothing_of_it_stays(staging: Staging, tmp_path: Path) -> None:
    source = model(tmp_path / "data/m", 1000)
    to = tmp_path / "shm/m"
    staging.begin(submission(to, str(tmp_path / "data")))
    await ended(staging)
    (to / "model.safetensors").unlink()
    (source / "model.safetensors").write_bytes(safetensors(1000, b"\x03"))

    staging.begin(submission(to, str(tmp_path / "data")))
    refused = await ended(staging)
    left = names(to)
    staging.begin(submission(to, str(tmp_path / "data")), forget=True)
    forgotten = await ended(staging)

    assert refused.phase == "failed"
    assert "has not the hash of the first good copy" in refused.problem
    assert left == ["config.json"]
    assert forgotten.phase == "done"
    assert (await verdict_on(to, staging)).outcome is Outcome.PASS


async def test_damaged_copy_is_replaced_and_a_good_one_is_not_read_again(staging: Staging, tmp_path: Path) -> None:
    source = model(tmp_path / "data/m", 1000)
    to = tmp_path / "shm/m"
    staging.begin(submission(to, str(tmp_path / "data")))
    await ended(staging)
    untouched = (to / "config.json").stat().st_ino
    (to / "model.safetensors").write_bytes(safetensors(1000, b"\x04"))

    staging.begin(submission(to, str(tmp_path / "data")))
    status = await ended(staging)

    assert status.phase == "done", status.problem
    assert (to / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    assert (to / "config.json").stat().st_ino == untouched


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 16 MiB; making one needs root."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
async def test_no_room_is_said_before_the_first_byte(staging: Staging, tmp_path: Path, small: Path) -> None:
    model(tmp_path / "data/m", 20 << 20)

    staging.begin(submission(small / "m", str(tmp_path / "data")))
    status = await ended(staging)

    assert status.phase == "failed"
    assert "are free in" in status.problem
    assert "remount,size" in status.do
    assert list(small.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
async def test_room_that_runs_out_on_the_way_leaves_nothing(tmp_path: Path, small: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (20 << 20))

    with pytest.raises(StageProblem, match="no room for"):
        copy_file(source, small / "to", "", lambda _: None, threading.Event())

    assert list(small.iterdir()) == [], "tmpfs is memory: what is of no use is given back"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
async def test_memory_limit_that_tmpfs_counts_to(
    staging: Staging, tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a container cannot be set here: what is read of it is."""

    async def limit(_: object) -> MemoryLimit:
        return MemoryLimit(4 << 30, 3 << 30, 2 << 30, 1 << 20, 0, "/sys/fs/cgroup/memory.max")

    monkeypatch.setattr(staging_module, "memory_limit", limit)
    model(tmp_path / "data/m", 5 << 20)

    staging.begin(submission(small / "m", str(tmp_path / "data")))
    in_memory = await ended(staging)
    staging.begin(submission(tmp_path / "disk/m", str(tmp_path / "data")))
    on_disk = await ended(staging)

    assert "stands in memory" in in_memory.problem
    assert "tmpfs counts to it" in in_memory.problem
    assert on_disk.phase == "done"


async def test_operators_command_brings_it(staging: Staging, tmp_path: Path) -> None:
    model(tmp_path / "data/m", 2000)
    to = tmp_path / "shm/m"
    command = ["sh", "-c", f'test "$DDCONSOLE_STAGE_TO" = "$0" && cp -r {tmp_path}/data/m "$0"', "{to}"]

    staging.begin(submission(to, command))
    status = await ended(staging)

    assert status.phase == "done", status.problem
    assert (await verdict_on(to, staging)).outcome is Outcome.PASS


async def test_operators_command_that_fails_or_brings_less(staging: Staging, tmp_path: Path) -> None:
    to = tmp_path / "shm/m"
    staging.begin(submission(to, ["sh", "-c", "echo no such bucket >&2; exit 3"]))
    failed = await ended(staging)
    staging.begin(submission(to, ["sh", "-c", f"mkdir -p {to} && echo '{{}}' > {to}/config.json"]))
    less = await ended(staging)
    staging.begin(submission(to, ["/nowhere/fetch"]))
    missing = await ended(staging)

    assert failed.problem == "sh ended with 3: no such bucket"
    assert "has no weights" in less.problem
    assert "/nowhere/fetch: No such file" in missing.problem


async def test_operators_command_is_stopped_with_its_children(staging: Staging, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    staging.begin(submission(tmp_path / "shm/m", ["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"]))
    await until(lambda: pid.exists() and pid.read_text().strip())

    await staging.stop()

    assert staging.status.phase == "stopped"
    child = Path(f"/proc/{pid.read_text().strip()}/stat")
    await until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")


async def test_plan_without_a_source_and_rehearsals_are_refused(staging: Staging, tmp_path: Path) -> None:
    with pytest.raises(StageProblem, match="does not say where the model comes from"):
        staging.begin(submission(tmp_path / "m", None))
    with pytest.raises(StageProblem, match="stages nothing"):
        staging.begin(replace(submission(tmp_path / "m", "/data"), rehearsal={"scale": 60}))
    staging.begin(submission(tmp_path / "m", str(tmp_path / "nowhere")))
    assert "there is nothing in" in (await ended(staging)).problem
