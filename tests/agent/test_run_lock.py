"""One writer to a run: on a local disk, on one without locks, and on one that machines share."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from ddconsole.agent.journal import Journal, JournalHeld
from ddconsole.agent.run_lock import RunHeld, RunLock, on_network
from ddconsole.core.clock import SystemClock
from ddconsole.runner.boot import Boot

LOCAL = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
NFS = LOCAL + "40 22 0:50 / {} rw - nfs4 server:/home rw,vers=4.1,local_lock=none\n"


@pytest.fixture
def no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home on which flock fails as it does on NFS without a lock service; other disks are as ever."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(str(tmp_path)):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_the_kind_of_disk_is_read_from_the_deepest_mount(tmp_path: Path) -> None:
    home = tmp_path / "with blank"
    home.mkdir()
    point = str(home).replace(" ", "\\040")
    assert not on_network(home, LOCAL)
    assert on_network(home, NFS.format(point))
    assert not on_network(tmp_path, NFS.format(point))
    assert on_network(home, LOCAL + f"41 22 0:51 / {point} rw - fuse.sshfs me@host:/ rw\n")
    assert not on_network(home, NFS.format(point) + f"42 22 0:52 / {point} rw shared:1 - tmpfs tmpfs rw\n")
    assert not on_network(home, "nonsense\n\n")


@pytest.mark.usefixtures("no_locks")
def test_a_home_without_locks_has_one_writer_all_the_same(tmp_path: Path) -> None:
    def opened() -> Journal:
        return Journal.open(tmp_path / "journal.jsonl", SystemClock(), boot=Boot("b", 0.0, 7.0), pid=1, version="test")

    first = opened()
    with pytest.raises(JournalHeld, match="is conducted by another agent"):
        opened()
    first.close()
    second = opened()
    assert second.state.epoch == 2
    second.close()


def test_a_shared_home_says_which_machine_conducts_a_run(tmp_path: Path) -> None:
    shared = NFS.format(tmp_path)
    lock = RunLock(tmp_path, shared)
    assert json.loads((tmp_path / ".agent.json").read_bytes()) == {"host": socket.gethostname()}
    with pytest.raises(RunHeld, match="another agent"):
        RunLock(tmp_path, shared)
    lock.close()
    assert not (tmp_path / ".agent.json").exists()
    (tmp_path / ".agent.json").write_text('{"host": "node17"}')
    for _ in range(2):
        with pytest.raises(RunHeld, match=r"E132 .* is conducted by the agent of node17, .* or remove .*\.agent\.json"):
            RunLock(tmp_path, shared)
    # One that was killed leaves the record of this machine behind: that is no other machine.
    (tmp_path / ".agent.json").write_text(json.dumps({"host": socket.gethostname()}))
    RunLock(tmp_path, shared).close()
