"""A network that is far away: two network namespaces, the console's and the host's, with a delay on each way between.

    with far_network() as network, systemd_box(network.far, network.far_address) as box:
        subprocess.run(network.from_near("ssh", ...))

Nothing of the machine's own network changes: the console's side has a namespace too, in which nothing else runs.
"""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_RELAY = Path(__file__).with_name("delay_relay.py")
DELAY = 0.025
"""Seconds each way."""


@dataclass(frozen=True)
class FarNetwork:
    """Two namespaces of /run/netns and the addresses that they have for each other."""

    near: str
    far: str
    near_address: str = "192.0.2.1"
    far_address: str = "192.0.2.2"

    def from_near(self, *argv: str) -> list[str]:
        """The command line that runs `argv` on the console's side; all but its network is as here."""
        return ["nsenter", f"--net=/run/netns/{self.near}", *argv]


def require_far_network() -> None:
    """Skip where no such network can be made, but never in CI."""
    wanted = {
        "root": os.geteuid() == 0,
        "/dev/net/tun": Path("/dev/net/tun").exists(),
        "iproute2": any(Path(folder, "ip").exists() for folder in ("/sbin", "/usr/sbin", "/bin", "/usr/bin")),
    }
    missing = [name for name, there in wanted.items() if not there]
    if not missing:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"a far network needs {', '.join(missing)}")
    pytest.skip(f"a far network needs {', '.join(missing)}")


@contextlib.contextmanager
def far_network(delay: float = DELAY) -> Iterator[FarNetwork]:
    """Both namespaces and the link; afterwards they are gone."""
    require_far_network()
    end = secrets.token_hex(3)
    network = FarNetwork(f"ddnear-{end}", f"ddfar-{end}")
    made: list[str] = []
    relay: subprocess.Popen[bytes] | None = None
    try:
        for name in (network.near, network.far):
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.append(name)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        ends = (network.near, network.near_address, network.far, network.far_address)
        argv = [sys.executable, str(_RELAY), *ends, str(delay)]
        relay = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert relay.stdout is not None
        if relay.stdout.readline() != b"up\n":
            pytest.fail("no link between two network namespaces: may this root make TUN devices?")
        yield network
    finally:
        if relay is not None:
            relay.communicate(timeout=10)
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=True)
