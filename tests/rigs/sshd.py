"""A real sshd on a free port of 127.0.0.1, with keys of its own and, as root, a plain test user."""

import asyncio
import contextlib
import os
import pwd
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import psutil
import pytest

from ddconsole.link.host_spec import HostSpec
from ddconsole.link.ssh_host import SshSettings

USER = f"ddctest{os.environ.get('DDCONSOLE_TEST_USER', '')}{os.environ.get('PYTEST_XDIST_WORKER', '')}"
"""One to a worker, and to a checkout that names one: a test may change the account's login scripts."""
PROGRAM = "/usr/sbin/sshd"
_CONFIG = """
{extra}
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
UsePAM {pam}
StrictModes no
AllowStreamLocalForwarding {forwarding}
PrintMotd no
UseDNS no
{startups}
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""


def require_sshd() -> None:
    """Skip without an sshd, but never in CI."""
    if Path(PROGRAM).exists():
        return
    if os.environ.get("CI") == "true":
        pytest.fail("openssh-server is missing: apt-get install openssh-server")
    pytest.skip("openssh-server is not installed")


def login_user() -> pwd.struct_passwd:
    """The account that tests log in to: a plain one of their own as root, else the one they run as."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "-m", "-s", "/bin/bash", USER], check=False)
        subprocess.run(["usermod", "-p", "*", USER], check=True)
        return pwd.getpwnam(USER)


@dataclass
class Sshd:
    """A running sshd, its keys and its port."""

    folder: Path
    port: int
    forwarding: bool = True
    extra: str = ""
    """Lines of sshd_config that come first, so that they are the ones that count."""
    user: pwd.struct_passwd = field(default_factory=login_user)
    process: subprocess.Popen[bytes] | None = None
    address: str = "127.0.0.1"

    @property
    def spec(self) -> HostSpec:
        """As an operator would name it."""
        name = f"{self.user.pw_name}@{self.address}:{self.port}"
        return HostSpec(name, self.address, self.user.pw_name, self.port)

    def settings(self, **changes: object) -> SshSettings:
        """Settings that know the host's key and hold the right client key; nothing of the real user leaks in."""
        given: dict[str, object] = {
            "config_files": (),
            "known_hosts_files": (self.folder / "known_hosts",),
            "key_files": (self.folder / "client_key",),
            "use_key_agent": False,
            **changes,
        }
        return SshSettings(**given)  # type: ignore[arg-type]  # fields of SshSettings by name

    def make_keys(self) -> None:
        """Host key, client key, and the files that make them trusted."""
        self.new_host_key()
        client = asyncssh.generate_private_key("ssh-ed25519")
        _write_private(self.folder / "client_key", client.export_private_key())
        (self.folder / "authorized_keys").write_bytes(client.export_public_key())
        self.trust_host_key()

    def new_host_key(self) -> None:
        """Another host key, as after a reinstallation."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        _write_private(self.folder / "host_key", key.export_private_key())
        (self.folder / "host_key.pub").write_bytes(key.export_public_key())

    def trust_host_key(self) -> None:
        """Write the present host key into known_hosts, behind a comment and a line that cannot be read."""
        key = (self.folder / "host_key.pub").read_text().strip()
        lines = ["# known hosts of a test", "broken", f"[{self.address}]:{self.port} {key}"]
        (self.folder / "known_hosts").write_text("\n".join(lines) + "\n")

    def write_config(self, *, pam: bool = False) -> Path:
        """Write its configuration; with PAM a login is a session of logind's."""
        config = self.folder / "sshd_config"
        forwarding, sessions = ("yes" if one else "no" for one in (self.forwarding, pam))
        place = {"port": self.port, "address": self.address, "folder": self.folder}
        # Of this option the last line counts, not the first.
        startups = "" if "MaxStartups" in self.extra else "MaxStartups 100:30:200"
        given = {**place, "forwarding": forwarding, "pam": sessions, "startups": startups}
        config.write_text(_CONFIG.format(**given, extra=self.extra))
        return config

    def start(self) -> None:
        """Start it and wait until it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.write_config()
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        end = time.monotonic() + 20
        while time.monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        pytest.fail(f"sshd did not start: {(self.folder / 'sshd.log').read_text()[-800:]}")

    def set_password(self, password: str) -> None:
        """Give the account a password, where the tests run as root; `*` takes it away."""
        if password == "*":
            subprocess.run(["usermod", "-p", "*", self.user.pw_name], check=True)
        else:
            line = f"{self.user.pw_name}:{password}\n".encode()
            subprocess.run(["chpasswd"], input=line, check=True)

    def stop(self) -> None:
        """End it and its sessions."""
        if self.process is None:
            return
        for pid in self.sessions():
            _kill(pid, signal.SIGKILL)
        self.process.terminate()
        self.process.wait(10)
        self.process = None

    def sessions(self) -> list[int]:
        """Pids below the listening process: a session's privileged part, and the part that serves the user."""
        assert self.process is not None
        found, waiting = [], [self.process.pid]
        while waiting:
            parent = waiting.pop()
            children = [pid for pid in _children(parent) if b"sshd" in _command(pid)]
            found += children
            waiting += children
        return found

    def kill_sessions(self) -> int:
        """Every connection breaks; sshd goes on listening."""
        pids = self.sessions()
        for pid in pids:
            _kill(pid, signal.SIGKILL)
        return len(pids)

    def signal_sessions(self, number: signal.Signals) -> None:
        """Freeze sessions with SIGSTOP, thaw them with SIGCONT."""
        for pid in self.sessions():
            _kill(pid, number)


@contextlib.contextmanager
def prepared(*, forwarding: bool = True, extra: str = "") -> Iterator[Sshd]:
    """An sshd with keys, on a free port, not started yet; it ends with the context."""
    require_sshd()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Not below pytest's folder: sshd reads authorized_keys as the user, who may not enter there.
    with tempfile.TemporaryDirectory(prefix="ddconsole-sshd-") as folder:
        Path(folder).chmod(0o711)
        sshd = Sshd(Path(folder), port, forwarding, extra)
        sshd.make_keys()
        try:
            yield sshd
        finally:
            sshd.stop()


async def until_gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends in time."""
    for _ in range(int(seconds / 0.05)):
        if not Path(f"/proc/{pid}").exists() or _command(pid) == b"":
            return True
        await asyncio.sleep(0.05)
    return False


def environment_of(pid: int) -> Mapping[str, str]:
    """A process's environment at its start."""
    data = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(one.decode().split("=", 1) for one in data if b"=" in one)


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
