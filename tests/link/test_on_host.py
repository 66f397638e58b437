import fcntl
import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from ddconsole.link import on_host
from ddconsole.link.bundle import pack
from ddconsole.link.host_call import HostRefusal, answer_of, call_here, program


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short: pytest names folders after tests, and a socket's path may have 107 bytes."""
    return tmp_path_factory.mktemp("s")


def place(tmp_path: Path) -> Path:
    return Path(on_host.socket_path("/state", os.geteuid(), str(tmp_path)))


def test_the_socket_of_a_state_directory_has_one_place() -> None:
    path = on_host.socket_path("/home/me/.local/state/ddconsole", 1000)
    digest = hashlib.sha256(b"/home/me/.local/state/ddconsole").hexdigest()[:12]
    assert path == f"/tmp/ddconsole-1000/{digest}/agent.sock"


def test_a_path_too_long_for_a_socket_is_refused() -> None:
    with pytest.raises(on_host.RefusedError, match=r"E131 .* is 1\d\d bytes, the limit is 107"):
        on_host.socket_path("/state", 1000, "/x" * 45)


def test_the_sockets_folders_are_made_for_us_alone(tmp_path: Path) -> None:
    path = place(tmp_path)
    on_host.make_socket_folder(str(path))
    on_host.make_socket_folder(str(path))
    assert {one.stat().st_mode & 0o777 for one in (path.parent, path.parent.parent)} == {0o700}


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    path = place(tmp_path)
    on_host.make_socket_folder(str(path))
    path.parent.chmod(0o777)
    with pytest.raises(on_host.RefusedError, match=r"E130 .* has mode 0777, others may enter"):
        on_host.make_socket_folder(str(path))


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = place(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    path.parent.parent.symlink_to(elsewhere)
    with pytest.raises(on_host.RefusedError, match=r"E130 .* is a symbolic link"):
        on_host.make_socket_folder(str(path))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = place(tmp_path)
    path.parent.parent.mkdir(mode=0o700)
    os.chown(path.parent.parent, 12345, -1)
    with pytest.raises(on_host.RefusedError, match=r"E130 .* is owned by uid 12345, not by uid 0"):
        on_host.make_socket_folder(str(path))


@pytest.mark.parametrize(("name", "what"), [("agent.sock", "is no socket"), ("agent.sock.lock", "is no plain file")])
def test_something_else_in_the_sockets_place_is_refused(tmp_path: Path, name: str, what: str) -> None:
    path = place(tmp_path)
    on_host.make_socket_folder(str(path))
    (path.parent / name).symlink_to("/etc/passwd")
    with pytest.raises(on_host.RefusedError, match=f"E130 .*{name} {what}"):
        on_host.make_socket_folder(str(path))


def test_a_stale_socket_and_a_stale_lock_are_nobodys(tmp_path: Path) -> None:
    path = place(tmp_path)
    on_host.make_socket_folder(str(path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    Path(f"{path}.lock").touch()
    on_host.make_socket_folder(str(path))
    assert not on_host.answers(str(path))
    assert on_host.lock_holder(str(path)) is None


def test_who_holds_the_lock_and_whether_somebody_listens_is_seen(tmp_path: Path) -> None:
    path = place(tmp_path)
    on_host.make_socket_folder(str(path))
    with socket.socket(socket.AF_UNIX) as listener, Path(f"{path}.lock").open("w") as lock:
        listener.bind(str(path))
        listener.listen()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert on_host.answers(str(path))
        assert on_host.lock_holder(str(path)) == os.getpid()


# --- the bundle


def archive(tmp_path: Path, data: bytes, name: str = ".b.part") -> tuple[Path, int, str]:
    path = tmp_path / name
    path.write_bytes(data)
    return path, len(data), hashlib.sha256(data).hexdigest()


def test_a_bundle_is_unpacked_whole_under_its_name(tmp_path: Path) -> None:
    part, size, sha256 = archive(tmp_path, pack({"lib/a.py": b"1", "lib/x/b.so": b"2"}))
    folder = tmp_path / "0123456789abcdef"
    on_host.receive_bundle(str(part), str(folder), size, sha256)
    assert (folder / "lib/a.py").read_bytes() == b"1"
    assert (folder / "lib/x/b.so").stat().st_mode & 0o777 == 0o755
    assert [one.name for one in tmp_path.iterdir()] == [folder.name]


def test_a_truncated_upload_is_refused_and_removed(tmp_path: Path) -> None:
    part, size, sha256 = archive(tmp_path, pack({"a": b"1" * 5000}))
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(on_host.RefusedError, match=rf"holds {size - 10} of {size} bytes"):
        on_host.receive_bundle(str(part), str(tmp_path / "b"), size, sha256)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "member", [tarfile.TarInfo("../x"), tarfile.TarInfo("/etc/x"), tarfile.TarInfo("a/../../x"), tarfile.TarInfo("ln")]
)
def test_members_that_lead_elsewhere_are_refused_and_nothing_stays(tmp_path: Path, member: tarfile.TarInfo) -> None:
    if member.name == "ln":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(member, io.BytesIO())
    agents = tmp_path / "agents"
    agents.mkdir()
    part, size, sha256 = archive(agents, buffer.getvalue())
    with pytest.raises(on_host.RefusedError, match="E301"):
        on_host.receive_bundle(str(part), str(agents / "b"), size, sha256)
    assert [one.name for one in tmp_path.rglob("*")] == ["agents"]


def test_a_second_console_with_the_same_bundle_changes_nothing(tmp_path: Path) -> None:
    data = pack({"a": b"1"})
    folder = tmp_path / "b"
    for name in (".one.part", ".two.part"):
        part, size, sha256 = archive(tmp_path, data, name)
        on_host.receive_bundle(str(part), str(folder), size, sha256)
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


def test_old_bundles_go_when_nothing_runs_from_them(tmp_path: Path) -> None:
    used, unused, young, keep = ("0" * 15 + n for n in "1234")
    for name in (used, unused, young, keep):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / ".x.part").write_text("broken upload")
    (tmp_path / "notes").mkdir()
    python = tmp_path / used / "bin" / "python"
    python.symlink_to(sys.executable)
    text = "print('up', flush=True); input()"
    running = subprocess.Popen([python, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        for one in tmp_path.iterdir():
            if one.name != young:
                os.utime(one, (time.time() - 7200,) * 2)
        assert on_host.clear_bundles(str(tmp_path), keep) == [".x.part", unused]
        assert sorted(one.name for one in tmp_path.iterdir()) == sorted([used, young, keep, "notes"])
    finally:
        running.communicate(b"\n")


# --- being called


async def test_an_action_is_done_by_a_process_of_its_own(tmp_path: Path) -> None:
    seen = await call_here("look", {"state": str(tmp_path), "folder": str(tmp_path), "pid": os.getpid()})
    assert (seen["bundle"], seen["alive"], seen["answers"], seen["lock"]) == (True, True, False, None)


async def test_a_refusal_comes_back_as_one(tmp_path: Path) -> None:
    start = {"command": ["/no/such/program"], "state": str(tmp_path), "log": f"{tmp_path}/log", "environment": {}}
    with pytest.raises(HostRefusal, match="/no/such/program: No such file"):
        await call_here("start", {**start, "socket": str(place(tmp_path))})


def test_noise_around_the_answer_does_no_harm() -> None:
    output = b'welcome\nddconsole-1 {"ok": 0}\n\nddconsole-2 {"ok": 7}\nbye\n'
    assert answer_of("ddconsole-2", output, b"", 0) == 7
    with pytest.raises(HostRefusal, match="status 127 and said: sh: not found"):
        answer_of("ddconsole-3", output, b"sh: not found\n", 127)


def test_what_is_sent_needs_nothing_but_python(tmp_path: Path) -> None:
    text = program("nonce", "look", {"state": "/x'\"\\\n$(id)"})
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"], input=text, capture_output=True, cwd=tmp_path, env={}, check=True
    )
    assert answer_of("nonce", done.stdout, done.stderr, 0)["answers"] is False
