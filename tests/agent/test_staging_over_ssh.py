"""Bringing a model from another host: a real sshd, by rsync and by sftp; stopped, resumed, wrong, and without room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sshd import Sshd, prepared
from staged import ended, model, names, safetensors, staging_of, submission, until

from ddconsole.agent import stage_fetch
from ddconsole.agent import staging as staging_module
from ddconsole.agent.staging import RUNNING, Staging
from ddconsole.preflight.cgroup import MemoryLimit

_WRAPPER = '#!/bin/sh\nexec /usr/bin/ssh -F "{config}" "$@"\n'
_CONFIG = """
Host models
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  LogLevel ERROR
"""


@dataclass(frozen=True)
class Source:
    """A host that has models, by an alias that `ssh` knows."""

    sshd: Sshd
    models: Path
    way: str


@pytest.fixture(params=["rsync", "sftp"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    with prepared() as sshd:
        config = sshd.folder / "ssh_config"
        config.write_text(_CONFIG.format(port=sshd.port, user=sshd.user.pw_name, folder=sshd.folder))
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(_WRAPPER.format(config=config))
        (programs / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        if request.param == "sftp":
            monkeypatch.setattr(shutil, "which", lambda _: None)
        models = sshd.folder / "models"
        sshd.start()
        yield Source(sshd, models, request.param)


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staging:
    monkeypatch.setattr(staging_module, "_LOOK", 0.01)
    return staging_of(tmp_path)


async def test_model_comes_from_another_host_and_once_only(staging: Staging, source: Source, tmp_path: Path) -> None:
    model(source.models / "m", 3 << 20)
    to = tmp_path / "shm/m"

    staging.begin(submission(to, f"models:{source.models}"))
    status = await ended(staging)

    assert status.phase == "done", status.problem
    assert (to / "model.safetensors").read_bytes() == (source.models / "m/model.safetensors").read_bytes()
    assert [name for name in names(to) if not name.startswith(".")] == ["config.json", "model.safetensors"]
    assert [path.name for path in to.parent.iterdir()] == ["m"], "no part is left"
    source.sshd.stop()
    staging.begin(submission(to, f"models:{source.models}"))
    assert (await ended(staging)).phase == "done", "what is whole is not fetched again"


async def test_fetching_is_stopped_and_goes_on_where_it_was(staging: Staging, source: Source, tmp_path: Path) -> None:
    model(source.models / "m", 150 << 20)
    to = tmp_path / "shm/m"
    order = submission(to, f"models:{source.models}")

    staging.begin(order)
    await until(lambda: staging.status.done >= 8 << 20 or staging.status.phase not in RUNNING)
    told = staging.status
    await staging.stop()
    stopped, whole = staging.status, (to / "model.safetensors").exists()
    kept = stage_fetch.bytes_there(*to.parent.iterdir())
    staging.begin(order)
    await until(lambda: staging.status.phase != "looking")
    first_told = staging.status
    done = await ended(staging)

    assert told.total >= 150 << 20, "the host was asked how much it is"
    assert stopped.phase == "stopped", stopped
    assert not whole, "what is not whole has not its name"
    assert kept >= 8 << 20
    assert first_told.done == 0 or first_told.done >= kept
    assert done.phase == "done", done.problem
    assert (to / "model.safetensors").read_bytes() == (source.models / "m/model.safetensors").read_bytes()


async def test_damaged_copy_is_fetched_again_and_another_source_is_refused(
    staging: Staging, source: Source, tmp_path: Path
) -> None:
    model(source.models / "m", 1000)
    to = tmp_path / "shm/m"
    order = submission(to, f"models:{source.models}")
    staging.begin(order)
    await ended(staging)
    there = (to / "model.safetensors").stat()
    (to / "model.safetensors").write_bytes(safetensors(1000, b"\x04"))
    os.utime(to / "model.safetensors", ns=(there.st_atime_ns, there.st_mtime_ns))

    staging.begin(order)
    mended = await ended(staging)
    (to / "model.safetensors").unlink()
    (source.models / "m/model.safetensors").write_bytes(safetensors(1000, b"\x05"))
    staging.begin(order)
    other = await ended(staging)

    assert mended.phase == "done", mended.problem
    assert other.phase == "failed"
    assert "has not the hash of the first good copy" in other.problem
    assert "--forget" in other.do


async def test_no_room_is_said_before_the_first_byte(
    staging: Staging, source: Source, tmp_path: Path, small: Path
) -> None:
    model(source.models / "m", 20 << 20)

    staging.begin(submission(small / "m", f"models:{source.models}"))
    status = await ended(staging)

    assert status.phase == "failed"
    assert "are free in" in status.problem
    assert stage_fetch.bytes_there(small) == 0


async def test_host_that_cannot_be_asked_and_folder_that_is_not_there(
    staging: Staging, source: Source, tmp_path: Path
) -> None:
    staging.begin(submission(tmp_path / "m", f"models:{source.models}/none"))
    no_folder = await ended(staging)
    (source.sshd.folder / "authorized_keys").write_text("")
    staging.begin(submission(tmp_path / "m", f"models:{source.models}"))
    no_login = await ended(staging)

    assert "has no" in no_folder.problem
    assert "ssh to models" in no_login.problem
    assert "BatchMode=yes models true" in no_login.do


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
async def test_command_that_brings_more_than_the_memory_limit_leaves_is_ended(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows beforehand how much a command brings; tmpfs counts to the container's limit while it comes."""

    async def limit(_: object) -> MemoryLimit:
        used = (2 << 30) + stage_fetch.bytes_there(small)
        return MemoryLimit((3 << 30) + (4 << 20), used, used, 0, 0, "/sys/fs/cgroup/memory.max")

    monkeypatch.setattr(staging_module, "memory_limit", limit)
    monkeypatch.setattr(staging_module, "_LOOK", 0.01)
    staging = staging_of(tmp_path)
    script = f"mkdir {small}/m; for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > {small}/m/$i; sleep 0.1; done"

    staging.begin(submission(small / "m", ["sh", "-c", script]))
    status = await ended(staging)

    assert status.phase == "failed"
    assert "tmpfs counts to it" in status.problem
    assert len(list((small / "m").iterdir())) < 8, "it was ended on the way"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 16 MiB; making one needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
