"""Storage that fails, wherever something is written: nothing is spoiled, and the sweep says why it waits."""

import errno
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from failing_disk import FailingDisk, Rule, arm, environment, fired, mend
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until
from waiting import until as wait

from ddconsole.agent import launcher
from ddconsole.agent.journal import FORMAT, Journal, JournalDamaged, JournalNewer
from ddconsole.agent.run_store import RunStore
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.clock import SystemClock
from ddconsole.core.events import Entry, EpochBegan, Warned
from ddconsole.core.journal_line import encode_line, read_lines
from ddconsole.core.own_process import own_process
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command, Submission
from ddconsole.runner.boot import Boot
from ddconsole.runner.disk import PLACE
from ddconsole.runner.durable import AppendFile, StorageFailed, append_line, sweep_ruins, write_whole
from ddconsole.runner.run_directory import RunDirectory

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT]
SITES = ["open", "write", "short", "sync", "rename"]


def failing(folder: Path, file: str, where: str, error: int, monkeypatch: pytest.MonkeyPatch) -> Rule:
    """A rule that holds for this process's disk."""
    rule = Rule(str(folder / "rule"), file, where, error=error)
    Path(rule.folder).mkdir()
    monkeypatch.setattr(PLACE, "disk", FailingDisk(rule))
    return rule


def opened(path: Path) -> Journal:
    return Journal.open(path, SystemClock(), boot=Boot("boot", 0.0, 7.0), pid=1, version="0.1")


# --- the two ways of writing


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: errno.errorcode[one])
@pytest.mark.parametrize("where", SITES)
def test_a_replacement_that_fails_changes_nothing_and_names_its_file(
    where: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "files"
    place.mkdir()
    write_whole(place / "1.json", b"old")
    rule = failing(tmp_path, "1.json", where, error, monkeypatch)
    arm(rule)
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the number is checked below
        write_whole(place / "1.json", b"new content")
    assert (raised.value.errno, raised.value.filename) == (error, str(place / "1.json"))
    assert fired(rule)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"1.json": b"old"}
    mend(rule)
    write_whole(place / "1.json", b"new content")
    assert (place / "1.json").read_bytes() == b"new content"


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: errno.errorcode[one])
@pytest.mark.parametrize("where", ["write", "short"])
def test_an_append_that_fails_leaves_no_ruins(
    where: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = failing(tmp_path, "*.jsonl", where, error, monkeypatch)
    path, telemetry = tmp_path / "events.jsonl", tmp_path / "telemetry.jsonl"
    file = AppendFile(path)
    file.append(b"first\n")
    append_line(telemetry, b"first\n", largest=1000)
    arm(rule)
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the number is checked below
        file.append(b"second\n")
    assert (raised.value.errno, raised.value.filename) == (error, str(path))
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the number is checked below
        append_line(telemetry, b"second\n", largest=1000)
    assert (raised.value.errno, raised.value.filename) == (error, str(telemetry))
    assert path.read_bytes() == telemetry.read_bytes() == b"first\n"
    mend(rule)
    file.append(b"third\n")
    file.sync()
    append_line(telemetry, b"third\n", largest=1000)
    assert path.read_bytes() == telemetry.read_bytes() == b"first\nthird\n"
    file.close()


def test_ruins_that_cannot_be_cut_off_end_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = failing(tmp_path, "*.jsonl", "short", errno.EIO, monkeypatch)
    file = AppendFile(tmp_path / "events.jsonl")
    arm(rule)

    def broken(_descriptor: int, _size: int, path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(PLACE.disk, "cut", broken)
    with pytest.raises(OSError, match="Input/output error"):
        file.append(b"first\n")
    mend(rule)
    with pytest.raises(StorageFailed):
        file.append(b"second\n")
    assert (tmp_path / "events.jsonl").read_bytes() == b"fir"
    file.close()


def test_a_line_that_a_kill_tore_is_ended_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b"')
    append_line(path, b'{"c": 3}\n', largest=1000)
    assert path.read_bytes() == b'{"a": 1}\n{"b"\n{"c": 3}\n'
    append_line(path, b'{"d": 4}\n', largest=10)
    assert path.stat().st_size == 23


def test_only_ruins_of_the_dead_are_swept(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ruins = tmp_path / f".1.json.{child.pid}.part"
    ruins.write_bytes(b"half")
    sweep_ruins([tmp_path])
    assert ruins.exists()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    sweep_ruins([tmp_path])  # it is dead, and nobody has asked for its status yet
    assert not ruins.exists()
    child.communicate()


# --- the journal


def test_a_failed_sync_is_final_until_all_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    rule = failing(tmp_path, "journal.jsonl", "sync", errno.EIO, monkeypatch)
    journal = opened(path)
    journal.append([Warned("told")])
    before = path.read_bytes()
    arm(rule)
    for _ in range(3):
        with pytest.raises(StorageFailed):
            journal.append([Warned("never told")])
    assert fired(rule) == ["sync journal.jsonl"]
    assert path.read_bytes() == before == b"".join(journal.lines)
    with pytest.raises(OSError, match="Input/output error"):
        journal.write_anew()
    assert path.read_bytes() == before
    mend(rule)
    with pytest.raises(StorageFailed):
        journal.append([Warned("not yet")])
    inode = path.stat().st_ino
    journal.write_anew()
    assert path.stat().st_ino != inode
    journal.append([Warned("told again")])
    entries, damage = read_lines(path.read_bytes())
    assert damage is None
    assert [one.text for one in journal.state.warnings][0::2] == ["told", "told again"]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    journal.close()


def test_lines_that_were_written_together_count_together(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.append([Warned("alone")])
    whole = path.read_bytes()
    journal.append([Warned("one"), Warned("two"), Warned("three")])
    journal.close()
    data = path.read_bytes()
    for cut in range(len(whole), len(data), 7):
        path.write_bytes(data[:cut])
        again = opened(path)
        assert [one.text for one in again.state.warnings] == ["alone"]
        assert path.read_bytes().startswith(whole)
        again.close()
        for aside in tmp_path.glob("*.torn-*"):
            assert whole + aside.read_bytes() == data[:cut]
            aside.unlink()


def test_damage_in_the_middle_is_told_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.append([Warned("first")])
    journal.append([Warned("second")])
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[0] + lines[1].replace(b"first", b"fxrst") + lines[2]
    path.write_bytes(damaged)
    start, end = len(lines[0]), len(lines[0]) + len(lines[1])
    text = f"line 2 .bytes {start} to {end}. is damaged, {start} bytes before it are whole, 1 lines stand behind it"
    with pytest.raises(JournalDamaged, match=text):
        opened(path)
    assert path.read_bytes() == damaged


def test_a_tail_of_zeros_is_cut_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.append([Warned("kept")])
    journal.close()
    path.write_bytes(path.read_bytes() + b"\0" * 4096)
    again = opened(path)
    assert [one.text for one in again.state.warnings] == ["kept"]
    (aside,) = tmp_path.glob("*.torn-*")
    assert aside.read_bytes() == b"\0" * 4096
    again.close()


def test_a_journal_of_a_later_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    later = encode_line(Entry(1, 1, 1.0, EpochBegan("created", "boot", 1, "9.9", format=FORMAT + 1)))
    path.write_bytes(later)
    with pytest.raises(
        JournalNewer, match=r"written by ddconsole 9\.9 \(format 2\); this is ddconsole 0\.1 \(format 1\)"
    ):
        opened(path)
    assert path.read_bytes() == later
    known = encode_line(Entry(1, 1, 1.0, EpochBegan("created", "boot", 1, "9.9")))
    unknown = encode_line(Entry(1, 2, 1.0, Warned("x"))).split(b",", 1)[1].replace(b"Warned", b"Foretold")
    rest = unknown.rstrip(b"\n")
    path.write_bytes(known + b'{"crc":"%08x",' % zlib.crc32(rest) + rest + b"\n")
    with pytest.raises(JournalNewer, match="entry 2 is of a kind that is not known here"):
        opened(path)


async def test_a_run_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create(submission([deployment("d01")], cells("d01", 1)))
    opened(run.journal).close()
    before = run.journal.read_bytes()
    run.submission.write_bytes(b"{ruins")
    service = Service(tmp_path, SystemClock())
    await service.start()
    assert service.active_run is None
    (problem,) = service.hello().problems
    assert problem.startswith("test-run cannot be taken over: ")
    assert (run.journal.read_bytes(), run.submission.read_bytes()) == (before, b"{ruins")
    await service.stop()


def test_a_folder_without_a_journal_is_no_run_and_in_nobodys_way(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    order = submission([deployment("d01")], cells("d01", 1))
    first = store.create(order)
    (first.path / "plan.yaml").write_bytes(b"ruins")
    second = store.create(order)
    assert second.plan.read_bytes() == b"name: test\n"


# --- a sweep


def one_launch(number: int) -> Submission:
    plan = [deployment("d01", load_seconds=0.05, workers=1)]
    return submission(plan, cells("d01", number, max_tokens=18), canary=False)


def with_failing_runners(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners run on the same disk."""
    monkeypatch.setattr(launcher, "own_process", lambda name, *more: own_process("failing_disk", name, *more))
    for name, value in environment(rule).items():
        monkeypatch.setenv(name, value)


async def sweep(folder: Path, file: str, where: str, error: int, monkeypatch: pytest.MonkeyPatch) -> RunState:
    """A sweep whose storage fails while its first cell runs, and is mended once the sweep says that it waits."""
    rule = failing(folder, file, where, error, monkeypatch)
    with_failing_runners(rule, monkeypatch)
    service = Service(folder / "runs", SystemClock())
    await service.start()
    try:
        if file in ("control.json", "launch.json", "events.jsonl"):
            arm(rule)
        service.submit(one_launch(3))
        if not (Path(rule.folder) / "armed").exists():
            await until(service, "test-run", lambda state: state.running_cell() is not None)
            arm(rule)
        said = await _until_it_waits(service)
        named = errno.errorcode[error]
        assert f"{file.replace('?', '1')}: {os.strerror(error)} ({named})" in said, said
        nothing_is_spoiled(directory(service))
        if file == "journal.jsonl":
            with pytest.raises(OSError, match=os.strerror(error)):
                service.command(directory(service), Command("early", "pause", "test"))
        mend(rule)
        if where == "sync" and file == "journal.jsonl":
            assert "STORAGE FAILED" in said
            await wait(lambda: "STORAGE FAILED" in json.loads(directory(service).status.read_bytes())["trouble"])
            assert fired(rule) == ["sync journal.jsonl"]
            assert service.command(directory(service), Command("on", "resume", "test")).taken
        else:
            await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED)
            assert service.command(directory(service), Command("on", "resume", "test")).taken
        state = await until(service, "test-run", ended)
        assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
        assert state.impossible_events == 0
        nothing_is_spoiled(directory(service))
        assert survivors(directory(service), state) == []
        assert not service.hello().problems
        return state
    finally:
        await service.stop()


async def _until_it_waits(service: Service) -> str:
    """What the sweep says: in the journal, or, where that cannot be written, to whoever asks the agent."""
    said: list[str] = []

    def waits() -> bool:
        journal = service.journal("test-run")
        assert journal is not None
        said[:] = [*service.hello().problems, journal.state.paused_because]
        return any(said)

    await wait(waits, 60)
    return " ".join(said)


def nothing_is_spoiled(run: RunDirectory) -> None:
    """Every file of the run can be read to its end."""
    for path in run.path.rglob("*.json"):
        json.loads(path.read_bytes())
    for path in [run.journal, *run.path.glob("launches/*/events.jsonl")]:
        _, damage = read_lines(path.read_bytes())
        assert damage is None, path
    telemetry = run.path / "telemetry.jsonl"
    if telemetry.exists():
        for line in telemetry.read_bytes().splitlines():
            json.loads(line)
    assert not list(run.path.rglob(".*.part"))


CI_FAULTS = [
    ("journal.jsonl", "short", errno.ENOSPC),
    ("journal.jsonl", "sync", errno.EIO),
    ("control.json", "rename", errno.EROFS),
    ("?.json", "short", errno.EDQUOT),
    ("events.jsonl", "sync", errno.EIO),
]
AGENT_FAULTS = [
    (file, where, error)
    for file in ("journal.jsonl", "control.json", "launch.json")
    for where in ("write", "short", "sync", *(() if file == "journal.jsonl" else ("open", "rename")))
    for error in ERRORS
]
RUNNER_FAULTS = [("?.json", where, error) for where in SITES for error in ERRORS] + [
    ("events.jsonl", where, error) for where in ("write", "short", "sync") for error in (errno.EIO, errno.EROFS)
]


def _names(fault: object) -> str:
    return errno.errorcode[fault] if isinstance(fault, int) else str(fault)


@pytest.mark.engine
@pytest.mark.parametrize(("file", "where", "error"), CI_FAULTS, ids=_names)
async def test_storage_that_fails_pauses_the_sweep_and_resume_goes_on(
    file: str, where: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sweep(tmp_path, file, where, error, monkeypatch)


@pytest.mark.trial
@pytest.mark.engine
@pytest.mark.parametrize(("file", "where", "error"), AGENT_FAULTS + RUNNER_FAULTS, ids=_names)
async def test_every_fault_at_every_place(
    file: str, where: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sweep(tmp_path, file, where, error, monkeypatch)


UNNEEDED = ["status.json", "telemetry.jsonl", "live.json"]


@pytest.mark.engine
@pytest.mark.parametrize("file", UNNEEDED)
async def test_what_is_only_for_watching_stops_nothing(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = failing(tmp_path, file, "short", errno.ENOSPC, monkeypatch)
    arm(rule)
    with_failing_runners(rule, monkeypatch)
    service = Service(tmp_path / "runs", SystemClock())
    await service.start()
    service.submit(one_launch(2))
    state = await until(service, "test-run", lambda one: ended(one) or one.phase is st.RunPhase.PAUSED)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    await service.stop()
    assert fired(rule)
    nothing_is_spoiled(directory(service))
