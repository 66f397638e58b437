"""A machine in a box: a full systemd with sshd and logind in namespaces of its own, over a throw-away copy of /.

    with systemd_box() as box:
        box.write("/etc/systemd/system/one.service", "[Service]\nExecStart=/bin/sleep 99\n")
        box.run("systemctl", "start", "one.service")
        connect(box.sshd.spec.text, ssh=box.sshd.settings())   # as root; `box.add_user` makes others
        box.reboot()

Root is needed, and nothing of the machine outside changes but a cgroup that is removed again. The box has the network
of its maker (or of a named network namespace): 127.0.0.1 is the same machine's. It sees the whole file system: what
it writes there is its own, but for `box.folder` and what lies on another file system than /: that is the real thing.
"""

import contextlib
import os
import pwd
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sshd import Sshd, require_sshd

_INIT = Path(__file__).with_suffix(".sh")
_CHECKOUT = Path(__file__).parents[2]
_BOOT_DEADLINE = 30.0
_LISTEN = "0A"
"""As /proc/net/tcp has it."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def require_systemd_box() -> None:
    """Skip where no box can be made, but never in CI."""
    require_sshd()
    missing = "root" if os.geteuid() != 0 else "systemd" if not Path("/lib/systemd/systemd").exists() else ""
    if not missing:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"a box needs {missing}")
    pytest.skip(f"a box needs {missing}")


class SystemdBox:
    """A booted box. `run` enters it; `sshd` says how to log in to it."""

    def __init__(self, folder: Path, sshd: Sshd, network: str | None = None) -> None:
        self.folder = folder
        """Shared between inside and outside, under the same path."""
        self.sshd = sshd
        self._network = network
        self._disk: subprocess.Popen[bytes] | None = None
        self._machine: subprocess.Popen[bytes] | None = None
        self._cgroup = _cgroup_root() / f"ddconsole-box-{secrets.token_hex(4)}"

    # --- power

    def insert_disk(self) -> None:
        """Make the throw-away file system; it keeps what was written until the box is gone, over reboots too."""
        (self.folder / "t").mkdir()
        place = shlex.quote(str(self.folder / "t"))
        script = (
            f"mount -t tmpfs -o mode=755 tmpfs {place} && mkdir {place}/upper {place}/work {place}/root && echo && cat"
        )
        # It ends with its standard input: with us, however we end.
        self._disk = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._disk.stdout is not None
        if self._disk.stdout.readline() != b"\n":
            pytest.fail("no file system for the box: is this root with CAP_SYS_ADMIN?")

    def boot(self) -> None:
        """Switch it on, and wait until logins are possible and every enabled unit has been started."""
        assert self._disk is not None
        assert self._machine is None
        self._cgroup.mkdir(exist_ok=True)
        namespaces = [f"--mount=/proc/{self._disk.pid}/ns/mnt"]
        namespaces += [f"--net=/run/netns/{self._network}"] if self._network else []
        cgroup = shlex.quote(str(self._cgroup / "cgroup.procs"))
        isolate = "unshare --mount --pid --ipc --uts --cgroup --fork --kill-child=SIGKILL --propagation private"
        script = f"echo $$ >{cgroup} && exec {isolate} bash {shlex.quote(str(_INIT))}"
        environment = {
            "PATH": _PATH,
            "BOX": str(self.folder),
            "SHARED": "\n".join(_folders_elsewhere()),
            "SSHD": str(self.sshd.folder / "sshd_config"),
        }
        with (self.folder / "console.log").open("ab") as log:
            self._machine = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "nsenter", *namespaces, "sh", "-c", script],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_for_boot(time.monotonic() + _BOOT_DEADLINE)

    def _wait_for_boot(self, end: float) -> None:
        assert self._machine is not None
        while time.monotonic() < end and self._machine.poll() is None:
            with contextlib.suppress(subprocess.SubprocessError, OSError, IndexError):
                state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
                if state in {"running", "degraded"} and _listens(self.init, self.sshd.port):
                    return
            time.sleep(0.05)
        pytest.fail(f"the box did not boot: {(self.folder / 'console.log').read_text(errors='replace')[-1500:]}")

    def cut_power(self) -> None:
        """Every process in it is gone at once; what was written stays."""
        if self._machine is not None:
            self._machine.kill()
            self._machine.wait(20)
            self._machine = None
            self._forget_cgroups()

    def shut_down(self) -> None:
        """As `systemctl poweroff`: units are stopped in order; after 15 s the power is cut."""
        assert self._machine is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("systemctl", "poweroff", "--no-wall", check=False)
            self._machine.wait(15)
        self.cut_power()

    def reboot(self, *, orderly: bool = False) -> None:
        """Another boot of the same file system: /run, /dev/shm, all processes and all transient units are gone."""
        if orderly:
            self.shut_down()
        self.cut_power()
        self.boot()

    def close(self) -> None:
        """End it and forget all that was written in it."""
        self.cut_power()
        if self._disk is not None:
            self._disk.communicate(b"")
            self._disk = None

    def _forget_cgroups(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                for path in sorted(self._cgroup.rglob("*"), key=lambda one: len(one.parts), reverse=True):
                    if path.is_dir():
                        path.rmdir()
                self._cgroup.rmdir()
                return
            time.sleep(0.05)

    # --- inside

    @property
    def init(self) -> int:
        """The pid that the box's pid 1 has outside."""
        assert self._machine is not None
        return psutil.Process(self._machine.pid).children()[0].pid

    def entering(self, *argv: str, user: str | None = None) -> list[str]:
        """The command line, outside, that runs `argv` in the box as root or as a user with a user manager.

        It runs in no unit and no session of the box: an agent is better started over SSH or by systemd-run.
        """
        namespaces = ("--mount", "--uts", "--ipc", "--pid", "--cgroup", "--net")
        start = ["nsenter", "-t", str(self.init), *namespaces, "--root", "--wd=/"]
        if user is None:
            return [*start, "env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", *argv]
        account = pwd.getpwnam(user)
        runtime = f"XDG_RUNTIME_DIR=/run/user/{account.pw_uid}"
        become = ["setpriv", f"--reuid={user}", f"--regid={account.pw_gid}", "--init-groups"]
        environment = [f"PATH={_PATH}", f"HOME={account.pw_dir}", f"USER={user}", "LANG=C.UTF-8", runtime]
        return [*start, *become, "env", "-i", *environment, *argv]

    def run(
        self, *argv: str, user: str | None = None, check: bool = True, timeout: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a short command in the box.

        Raises:
            subprocess.CalledProcessError: its status is not 0 and `check` is set.
            subprocess.TimeoutExpired: it took too long.
        """
        return subprocess.run(
            self.entering(*argv, user=user),
            check=check,
            timeout=timeout,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )

    def show(self, unit: str, name: str, *, user: str | None = None) -> str:
        """A property of a unit, as `systemctl show` prints it."""
        manager = ["--user"] if user else []
        return self.run("systemctl", *manager, "show", "-p", name, "--value", "--", unit, user=user).stdout.strip()

    def path(self, inside: str) -> Path:
        """Where a file of the box is to be seen from outside, for reading and writing."""
        return Path(f"/proc/{self.init}/root{inside}")

    def write(self, inside: str, text: str) -> None:
        """Write a file in the box; unit files are loaded at once."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if "/systemd/" in inside:
            self.run("systemctl", "daemon-reload")

    def linger(self, user: str) -> None:
        """Start the user's manager, and have it started at every boot. The account exists outside: `login_user`."""
        self.run("loginctl", "enable-linger", user)
        uid = pwd.getpwnam(user).pw_uid
        end = time.monotonic() + 15
        while not self.path(f"/run/user/{uid}/bus").exists():
            assert time.monotonic() < end, f"no user manager for {user}"
            time.sleep(0.05)


@contextlib.contextmanager
def systemd_box(network: str | None = None, address: str = "127.0.0.1") -> Iterator[SystemdBox]:
    """A booted box, which is gone afterwards with all in it.

    Args:
        network: a network namespace of /run/netns; the one that this runs in without it.
        address: where its sshd listens, of that network.
    """
    require_systemd_box()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ddbox-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "ssh").mkdir(mode=0o711)
        sshd = Sshd(folder / "ssh", port, user=pwd.getpwnam("root"), address=address)
        sshd.make_keys()
        sshd.write_config(pam=True)
        box = SystemdBox(folder, sshd, network)
        try:
            box.insert_disk()
            box.boot()
            yield box
        finally:
            box.close()


def _cgroup_root() -> Path:
    """Where version 2 of cgroups is: systemd may own only that one."""
    hybrid = Path("/sys/fs/cgroup/unified")
    return hybrid if hybrid.is_dir() else Path("/sys/fs/cgroup")


def _folders_elsewhere() -> list[str]:
    """This checkout and the interpreter: an overlay shows neither where they lie on another file system than /."""
    root = Path("/").stat().st_dev
    wanted = dict.fromkeys(map(str, (_CHECKOUT, sys.prefix, sys.base_prefix)))
    return [one for one in wanted if Path(one).stat().st_dev != root]


def _listens(init: int, port: int) -> bool:
    """Whether a port is listened on in the network of a process."""
    lines = (line.split() for line in Path(f"/proc/{init}/net/tcp").read_text().splitlines()[1:])
    return any(state == _LISTEN and place.endswith(f":{port:04X}") for _, place, _, state, *_ in lines)
