"""Only what a launch provably made is removed from shared memory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddconsole.runner.shared_memory import FOLDER, SharedMemory, clear_shared_memory

MAP = """
import mmap, sys, time
path, mode = sys.argv[1:]
with open(path, "a+b" if mode == "write" else "rb") as file:
    if mode == "write":
        file.truncate(4096)
    access = mmap.ACCESS_WRITE if mode == "write" else mmap.ACCESS_READ
    held = mmap.mmap(file.fileno(), 4096, access=access)
print("up", flush=True)
time.sleep(600)
"""


class Holders:
    """Processes that map a file, as servers do."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, path: Path, mode: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-c", MAP, str(path), mode], stdout=subprocess.PIPE)
        self.all.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    @staticmethod
    def end(process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def holders() -> Iterator[Holders]:
    one = Holders()
    yield one
    for process in one.all:
        one.end(process)


def test_a_new_file_that_a_member_mapped_for_writing_is_removed_once_nobody_holds_it(
    tmp_path: Path, holders: Holders
) -> None:
    notes, shm = tmp_path / "notes.json", tmp_path / "shm"
    shm.mkdir()
    memory = SharedMemory(notes, shm)
    server = holders.start(shm / "sglang_loads_x.shm", "write")
    memory.look([server.pid])
    assert memory.clear() == ()
    holders.end(server)
    assert memory.clear() == ("sglang_loads_x.shm",)
    assert list(shm.iterdir()) == []


def test_a_neighbour_that_holds_it_still_keeps_it(tmp_path: Path, holders: Holders) -> None:
    notes, shm = tmp_path / "notes.json", tmp_path / "shm"
    shm.mkdir()
    memory = SharedMemory(notes, shm)
    server = holders.start(shm / "psm_1", "write")
    memory.look([server.pid])
    neighbour = holders.start(shm / "psm_1", "read")
    holders.end(server)
    assert memory.clear() == ()
    holders.end(neighbour)
    # By what was written down, as an agent does whose runner is gone.
    assert clear_shared_memory(notes, shm) == ("psm_1",)


def test_what_was_there_before_what_is_only_read_and_what_others_made_stays(tmp_path: Path, holders: Holders) -> None:
    notes, shm = tmp_path / "notes.json", tmp_path / "shm"
    shm.mkdir()
    (shm / "old").write_bytes(bytes(4096))
    memory = SharedMemory(notes, shm)
    (shm / "model.gguf").write_bytes(bytes(4096))
    (shm / "staged").mkdir()
    members = [
        holders.start(shm / "old", "write"),
        holders.start(shm / "model.gguf", "read"),
        holders.start(shm / "staged" / "weights", "write"),
    ]
    stranger = holders.start(shm / "others", "write")
    memory.look([one.pid for one in members])
    for process in (*members, stranger):
        holders.end(process)
    assert memory.clear() == ()
    assert sorted(one.name for one in shm.iterdir()) == ["model.gguf", "old", "others", "staged"]


def test_a_name_that_was_used_again_is_not_the_launchs(tmp_path: Path, holders: Holders) -> None:
    notes, shm = tmp_path / "notes.json", tmp_path / "shm"
    shm.mkdir()
    memory = SharedMemory(notes, shm)
    server = holders.start(shm / "psm_1", "write")
    memory.look([server.pid])
    holders.end(server)
    (shm / "new").write_bytes(b"another's")
    (shm / "new").rename(shm / "psm_1")
    assert memory.clear() == ()
    notes.write_text(json.dumps({"../notes.json": [notes.stat().st_dev, notes.stat().st_ino], "x": 3}))
    assert clear_shared_memory(notes, shm) == ()
    assert notes.exists()


SEMAPHORE = """
import multiprocessing, os, time
held = multiprocessing.get_context("spawn").Semaphore()
print(held._semlock.name, flush=True)
time.sleep(600)
"""


def test_a_semaphore_that_the_c_library_mapped_under_another_name_is_removed(tmp_path: Path, holders: Holders) -> None:
    """As Python's servers leave them when they are killed with the tracker that should have removed them."""
    memory = SharedMemory(tmp_path / "notes.json")
    process = subprocess.Popen([sys.executable, "-c", SEMAPHORE], stdout=subprocess.PIPE, start_new_session=True)
    holders.all.append(process)
    assert process.stdout is not None
    name = "sem." + process.stdout.readline().decode().strip().lstrip("/")
    assert (FOLDER / name).exists()
    memory.look([process.pid])
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert memory.clear() == (name,)
    assert not (FOLDER / name).exists()
