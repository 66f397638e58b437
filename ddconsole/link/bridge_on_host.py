"""Joins stdin and stdout to the agent's socket; its text is sent to the host's Python where sshd forbids forwarding."""

import os
import select
import socket


def bridge(path: str, marker: str) -> None:
    """Say `marker`, then carry bytes both ways until either side ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.connect(path)
        _write(b"\n" + marker.encode() + b"\n")
        while True:
            readable, _, _ = select.select([0, agent.fileno()], [], [])
            if 0 in readable:
                asked = os.read(0, 65536)
                if not asked:
                    return
                agent.sendall(asked)
            if agent.fileno() in readable:
                answered = agent.recv(65536)
                if not answered:
                    return
                _write(answered)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
