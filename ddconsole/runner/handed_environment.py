"""A process's environment, handed to what a systemd manager starts in its place: it would begin with the manager's own.

Not as properties of the unit, which anybody may read: through a file of ours that its reader removes.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

_OF_THE_MANAGER = (
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
)
"""What a unit's process has of its manager, and keeps."""


def agent_environment(socket: Path) -> Path:
    """Where the environment for the agent behind a socket is handed over: a folder that nobody else can enter."""
    return socket.with_name(f"{socket.name}.environment")


def boot_environment(state: Path) -> Path:
    """Where the environment is kept for an agent that starts at boot, without what looks like a secret."""
    return state / "environment.json"


def hand_over(path: Path, environment: Mapping[str, str] | None = None) -> None:
    """Write this process's environment, or another, for the owner's eyes only.

    Raises:
        OSError: it cannot be written.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(os.environ if environment is None else environment), file)


def take_over(path: Path, *, keep: bool = False) -> bool:
    """Make the environment in `path` this process's, and remove the file unless it is to be kept.

    Returns:
        Whether there was one.
    """
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    if not keep:
        with contextlib.suppress(OSError):
            path.unlink()
    own = {name: os.environ[name] for name in _OF_THE_MANAGER if name in os.environ}
    os.environ.clear()
    os.environ.update({str(name): str(value) for name, value in given.items() if name not in _OF_THE_MANAGER})
    os.environ.update(own)
    return True
