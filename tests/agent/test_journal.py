"""The journal on disk: torn tails, damage, epochs, and a disk that is full."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.journal import Journal, JournalDamaged, JournalHeld
from ddconsole.agent.run_store import RunStore
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.clock import ScaledClock, SystemClock
from ddconsole.core.events import EpochBegan, RunPaused, Warned
from ddconsole.core.journal_line import decode_line, read_lines
from ddconsole.core.wire import Command
from ddconsole.runner.boot import Boot
from ddconsole.runner.durable import write_whole
from ddconsole.runner.run_directory import LaunchDirectory, RunDirectory


def opened(path: Path, boot: str = "boot", kernel: float = 0.0) -> Journal:
    return Journal.open(path, SystemClock(), boot=Boot(boot, kernel, 7.0), pid=1, version="test")


def test_what_is_appended_is_on_disk_and_seq_goes_on_over_epochs(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = opened(path)
    first.append([Warned("one"), Warned("two")])
    first.close()
    again = opened(path)
    again.append([Warned("three")])
    entries, damage = read_lines(path.read_bytes())
    assert damage is None
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry.epoch for entry in entries] == [1, 1, 1, 2, 2]
    assert [one.text for one in again.state.warnings] == ["one", "two", "three"]
    assert b"".join(again.after(3)) == b"".join(path.read_bytes().splitlines(keepends=True)[3:])


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path / "journal.jsonl")
    with pytest.raises(JournalHeld, match="another agent"):
        opened(tmp_path / "journal.jsonl")
    first.close()
    assert opened(tmp_path / "journal.jsonl").state.epoch == 2


async def test_an_agent_leaves_runs_of_others_alone(tmp_path: Path) -> None:
    one = Service(tmp_path, SystemClock())
    await one.start()
    one.submit(submission([deployment("d01", pace=0.05)], cells("d01", 1)))
    await until(one, "test-run", lambda state: state.running_cell() is not None)
    for clock in (SystemClock(), ScaledClock(60.0, 0.0)):
        other = Service(tmp_path, clock)
        await other.start()
        assert other.active_run is None
        await other.stop()
    state = await until(one, "test-run", ended)
    assert state.epoch == 1
    assert state.cells["c001"].state.phase is st.CellPhase.DONE
    await one.stop()


def test_a_torn_tail_is_cut_kept_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = opened(path)
    first.append([Warned("kept")])
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"crc":"0000')
    journal = opened(path)
    assert [one.text for one in journal.state.warnings] == ["kept"]
    assert [one.read_bytes() for one in tmp_path.glob("journal.jsonl.torn-*")] == [b'{"crc":"0000']
    assert path.read_bytes().startswith(whole)


def test_damage_in_the_middle_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = opened(path)
    first.append([Warned("first"), Warned("second")])
    first.close()
    damaged = path.read_bytes().replace(b"first", b"fxrst")
    path.write_bytes(damaged)
    with pytest.raises(JournalDamaged, match="line 2"):
        opened(path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(("kernel", "told"), [(4e9, ("host rebooted", 4e9)), (5.0, ("container restarted", 7.0))])
def test_another_boot_is_told_with_its_time(tmp_path: Path, kernel: float, told: tuple[str, float]) -> None:
    path = tmp_path / "journal.jsonl"
    opened(path, "one").close()
    journal = opened(path, "two", kernel)
    assert journal.state.boot == "two"
    event = decode_line(journal.lines[-1].rstrip(b"\n")).event
    assert isinstance(event, EpochBegan)
    assert (event.reason, event.since) == told
    assert journal.state.booted == told[1]
    journal.close()
    assert opened(path, "two", kernel).began == "restarted"


def test_a_short_write_leaves_journal_and_result_as_they_were(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from pathlib import Path
from test_journal import opened
from ddconsole.core.events import Warned
from ddconsole.runner.boot import Boot
from ddconsole.runner.durable import write_whole
from ddconsole.runner.run_directory import LaunchDirectory, RunDirectory
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
journal = opened(folder / "journal.jsonl")
result = folder / "1.json"
write_whole(result, b"old")
before = (folder / "journal.jsonl").read_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, len(before) + 40))
for attempt in (lambda: journal.append([Warned("x" * 200)]), lambda: write_whole(result, b"n" * 10000)):
    try:
        attempt()
    except OSError:
        continue
    raise AssertionError("it was written")
assert (folder / "journal.jsonl").read_bytes() == before
assert result.read_bytes() == b"old"
assert sorted(path.name for path in folder.iterdir()) == [".agent.lock", ".ballast", "1.json", "journal.jsonl"]
"""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_write_that_fails_leaves_no_temp_file(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the number is checked below
        write_whole(target, b"data")
    assert raised.value.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
    assert list(tmp_path.iterdir()) == [target]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 and os.environ.get("CI") != "true":
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_pauses_the_sweep_and_resume_goes_on(small_disk: Path) -> None:
    service = Service(small_disk / "runs", SystemClock())
    await service.start()
    service.submit(submission([deployment("d01", pace=0.02)], cells("d01", 3)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    paused = await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED)
    assert paused.paused_by == "ddconsole"
    assert "free space, then resume" in paused.paused_because
    filler.unlink()
    await until(service, "test-run", lambda state: state.running_cell() is None)
    failed = [name for name, row in paused.cells.items() if isinstance(row.state, st.Failed)]
    service.command(directory(service), Command("resume", "resume", "test"))
    state = await until(service, "test-run", ended)
    for name, row in state.cells.items():
        if isinstance(row.state, st.Failed):
            assert row.state.cause.id == "DISK", phases(state)
        else:
            assert row.state.phase is st.CellPhase.DONE, (name, failed, phases(state))
    assert sum(1 for row in state.cells.values() if row.state.phase is st.CellPhase.DONE) >= 2
    assert survivors(directory(service), state) == []
    assert any(isinstance(one, RunPaused) for one in _events(directory(service).journal))
    await service.stop()


class BrokenLauncher:
    """A launcher with a defect."""

    async def start(self, run: RunDirectory, launch: int) -> None:
        raise ZeroDivisionError(f"launch {launch} of {run.path.name}")

    def alive(self, launch: LaunchDirectory) -> bool:
        return launch.runner.exists()

    async def bury(self, launch: LaunchDirectory) -> str:
        return launch.path.name


async def test_a_defect_of_ours_pauses_the_sweep_and_says_so(tmp_path: Path) -> None:
    service = Service(tmp_path, SystemClock(), BrokenLauncher())
    await service.start()
    service.submit(submission([deployment("d01")], cells("d01", 1)))
    state = await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED)
    assert "a defect of ddconsole: ZeroDivisionError: launch 1 of test-run" in state.paused_because
    await service.stop()


async def test_a_damaged_journal_is_named_and_left_alone(tmp_path: Path) -> None:
    one = Service(tmp_path, SystemClock())
    await one.start()
    one.submit(submission([deployment("d01", pace=0.05)], cells("d01", 1)))
    await until(one, "test-run", lambda state: state.running_cell() is not None)
    run = directory(one)
    one.command(run, Command("stop", "stop-run", "test"))
    await until(one, "test-run", ended)
    await one.stop()
    damaged = run.journal.read_bytes().replace(b'"RunEnded"', b'"RunEnxed"').replace(b"EpochBegan", b"EpochBegun")
    run.journal.write_bytes(damaged)
    other = Service(tmp_path, SystemClock())
    await other.start()
    (problem,) = other.hello().problems
    assert problem.startswith("test-run cannot be taken over: ")
    assert "line 1 " in problem
    assert run.journal.read_bytes() == damaged
    await other.stop()


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)

    def full(_path: Path, _value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ddconsole.agent.run_store.write_json", full)
    with pytest.raises(OSError, match="No space left"):
        store.create(submission([deployment("d01")], cells("d01", 1)))
    assert list(tmp_path.iterdir()) == []


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(b"\0" * 65536):
            pass


def _events(path: Path) -> list[object]:
    entries, damage = read_lines(path.read_bytes())
    assert damage is None
    return [entry.event for entry in entries]
