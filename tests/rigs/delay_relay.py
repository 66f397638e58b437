"""A link between two network namespaces that takes its time: a TUN device in each, packets carried with a delay.

usage: delay_relay.py NAMESPACE ADDRESS NAMESPACE ADDRESS SECONDS

Not every kernel has netem; a TUN device, nearly every one. It says `up` when packets go through, and ends with its
standard input.
"""

import ctypes
import fcntl
import os
import selectors
import struct
import subprocess
import sys
import time
from collections import deque

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE = "far0"
_PACKET = 2048
_AT_ONCE = 64
_LONGEST_QUEUE = 20_000
"""Packets; more are lost, as on a real line."""


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _device(name: str, own: str, other: str) -> int:
    """A TUN device in a namespace, as a point-to-point link."""
    here, there = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", f"/run/netns/{name}"))
    _enter(there)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    _enter(here)
    ip = ["ip", "-n", name]
    subprocess.run([*ip, "addr", "add", f"{own}/32", "peer", f"{other}/32", "dev", _DEVICE], check=True)
    subprocess.run([*ip, "link", "set", _DEVICE, "up", "mtu", "1400"], check=True)
    return device


def _carry(one: int, other: int, delay: float) -> None:
    ready = selectors.DefaultSelector()
    ready.register(one, selectors.EVENT_READ, other)
    ready.register(other, selectors.EVENT_READ, one)
    ready.register(sys.stdin, selectors.EVENT_READ)
    line: deque[tuple[float, int, bytes]] = deque()
    while True:
        wait = max(0.0, line[0][0] - time.monotonic()) if line else None
        for key, _ in ready.select(wait):
            if key.data is None:
                return
            for _ in range(_AT_ONCE):
                try:
                    packet = os.read(key.fd, _PACKET)
                except BlockingIOError:
                    break
                if len(line) < _LONGEST_QUEUE:
                    line.append((time.monotonic() + delay, key.data, packet))
        while line and line[0][0] <= time.monotonic():
            _, to, packet = line.popleft()
            try:
                os.write(to, packet)
            except OSError:
                continue


def main() -> None:
    """Be the link."""
    near, near_address, far, far_address, delay = sys.argv[1:]
    devices = _device(near, near_address, far_address), _device(far, far_address, near_address)
    print("up", flush=True)
    _carry(*devices, float(delay))


if __name__ == "__main__":
    main()
