"""The folder of this machine's user for what the console itself keeps."""

import os
from pathlib import Path


def state_folder() -> Path:
    """`$XDG_STATE_HOME/ddconsole`, or its default under the home folder; made where it is missing."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(base) / "ddconsole"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
