"""How to connect to a host over SSH, beyond what the operator's ssh configuration says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How to connect. None leaves a thing to the operator's ssh configuration. Times are seconds."""

    config_files: Sequence[Path] | None = None
    """Empty: no ssh configuration at all."""
    known_hosts_files: Sequence[Path] | None = None
    key_files: Sequence[Path] | None = None
    use_key_agent: bool = True
    keepalive_interval: float = 5.0
    """With `keepalive_count_max` silence is noticed after interval x (count + 1)."""
    keepalive_count_max: int = 2
    connect_time: float = 15.0
    """For TCP, or for the proxy."""
    server_time: float = 15.0
    """For the server to go on with key exchange and login while nobody is asked for anything."""
    login_time: float = 110.0
    """For the whole login with its questions: a little less than sshd's own two minutes."""
