"""Accounts with odd homes and odd login shells, for a real sshd; needs root."""

import contextlib
import os
import pwd
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sshd import USER


def require_root() -> None:
    """Skip without root, but never in CI."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("the tests of odd hosts need root")
    pytest.skip("only root can make accounts")


@contextlib.contextmanager
def account(home: Path, shell: str = "/bin/bash", files: dict[str, str] | None = None) -> Iterator[pwd.struct_passwd]:
    """A plain user with that home (which is there already) and that login shell; both end with the context.

    Args:
        home: made the account's own.
        shell: its login shell.
        files: login scripts in its home.
    """
    require_root()
    name = f"{USER}o"
    # The same number each time: what one account left in a folder that tests share is the next one's own.
    number = str(30_000 + zlib.crc32(name.encode()) % 20_000)
    _remove(name)  # of a test that was ended in the middle
    argv = ["useradd", "-M", "-u", number, "-d", str(home), "-s", shell, name]
    subprocess.run(argv, check=True, capture_output=True)
    try:
        subprocess.run(["usermod", "-p", "*", name], check=True)
        user = pwd.getpwnam(name)
        for path, text in (files or {}).items():
            (home / path).write_text(text)
            os.chown(home / path, user.pw_uid, user.pw_gid)
        os.chown(home, user.pw_uid, user.pw_gid)
        yield user
    finally:
        _remove(name)


def _remove(name: str) -> None:
    """End what still runs under the account, and the account."""
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return
    for process in psutil.process_iter(["uids"]):
        if process.info["uids"] and process.info["uids"].real == uid:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                process.kill()
                process.wait(10)
    subprocess.run(["userdel", "-f", name], check=True, capture_output=True)


@contextlib.contextmanager
def folder(name: str = "home") -> Iterator[Path]:
    """A folder that every user can reach, with a short path."""
    with tempfile.TemporaryDirectory(prefix="ddodd-", ignore_cleanup_errors=True) as top:
        Path(top).chmod(0o755)
        path = Path(top) / name
        path.mkdir(parents=True)
        yield path


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A tmpfs at that folder, such as with `size=1m` or `noexec`; `again` changes it later."""
    require_root()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "ddconsole-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    """Change a mount, such as to `ro` or to another size."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def fill(path: Path) -> None:
    """Take all the room that there is, with one file."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 65536):
            pass
