"""The real machine behind the seam."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from ddconsole.preflight.local_machine import LocalMachine


@pytest.fixture
def here() -> LocalMachine:
    return LocalMachine()


async def test_programs_run_without_a_shell(here: LocalMachine) -> None:
    ran = await here.run(
        (sys.executable, "-c", "import os, sys; print(os.environ['ADDED'], sys.argv[1]); sys.exit(3)", "$HOME"),
        20,
        {"ADDED": "yes"},
    )

    assert (ran.exit_code, ran.out) == (3, "yes $HOME\n")


async def test_program_that_is_given_up_is_killed_with_its_children(here: LocalMachine, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import subprocess, sys, os, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"with open({str(pids) + '.new'!r}, 'w') as file: file.write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(600)"
    )
    running = asyncio.create_task(here.run((sys.executable, "-c", script), 600))
    async with asyncio.timeout(30):
        while not pids.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    processes = [psutil.Process(int(pid)) for pid in pids.read_text().split() if psutil.pid_exists(int(pid))]
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


async def test_program_that_outlasts_its_deadline(here: LocalMachine) -> None:
    ran = await here.run((sys.executable, "-c", "import time; time.sleep(600)"), 0.2)

    assert ran.exit_code is None


async def test_program_that_is_not_there_is_an_os_error(here: LocalMachine) -> None:
    with pytest.raises(FileNotFoundError):
        await here.run(("/nowhere/program",), 5)


async def test_devices_are_opened_in_a_child(here: LocalMachine, tmp_path: Path) -> None:
    assert (await here.open_device("/dev/null", 20)).error is None
    assert (await here.open_device(str(tmp_path / "gone"), 20)).error == "ENOENT"
    assert (await here.open_device(str(tmp_path), 20)).error == "EISDIR"


async def test_device_that_hangs_in_open(here: LocalMachine, tmp_path: Path) -> None:
    """No file here hangs in open: the child gets no time to start instead."""
    opening = await here.open_device(str(tmp_path), 0.0)

    assert opening.error == "TIMEOUT"


async def test_driver_child_answers_on_a_machine_with_or_without_a_driver(here: LocalMachine) -> None:
    libraries = json.loads((await here.child("libraries", deadline=20)).out)
    cuda = json.loads((await here.child("cuda", deadline=60)).out)

    assert set(libraries) == {"libcuda.so.1", "libnvidia-ml.so.1"}
    for answer in libraries.values():
        assert (answer["file"] is None) == (answer["error"] is not None)
    assert "init" in cuda or "libcuda.so.1" in cuda["error"]


async def test_what_stands_under_a_path(here: LocalMachine, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    file = await here.status(str(tmp_path / "file"))
    folder = await here.status(str(tmp_path))
    null = await here.status("/dev/null")

    assert [await here.status(str(tmp_path / name)) for name in ("link", "gone", "file/below")] == [None] * 3
    assert file is not None
    assert (file.kind, file.size) == ("file", 5)
    assert folder is not None
    assert folder.kind == "folder"
    assert null is not None
    assert (null.kind, null.major) == ("character", 1)
    assert await here.read_bytes(str(tmp_path / "file"), 3, 100) == b"45"
    assert await here.list_folder(str(tmp_path)) == ("file", "link")
    with pytest.raises(FileNotFoundError):
        await here.read_text(str(tmp_path / "gone"))


async def test_room_for_a_folder_that_is_not_there_yet(here: LocalMachine, tmp_path: Path) -> None:
    room = await here.disk_room(str(tmp_path / "a/b/c"))

    assert room.path == str(tmp_path)
    assert room.free_bytes > 0
    assert room.writable


async def test_port_that_is_taken_names_its_owner(here: LocalMachine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = await here.port_use(port)
    free = await here.port_use(port)

    assert not taken.free
    assert taken.pid == os.getpid()
    assert taken.error == "Address already in use"
    assert taken.command
    assert free.free
