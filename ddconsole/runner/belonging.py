"""Which processes belong to a launch, as anybody on the host can find out: also when its runner is gone.

A process belongs to a launch when one of these is so:

- it is in the cgroup of the launch's own systemd unit;
- its runner wrote it down as a descendant of the server: boot token, pid and start time all match;
- it descends from one of those;
- its working folder, or a log that it writes, lies in the launch's folder.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ddconsole.core.survival import BOOTED_BY_SYSTEMD
from ddconsole.runner.identity import ProcessIdentity, descendants, members_by_cgroup, members_by_folder
from ddconsole.runner.run_directory import LaunchDirectory


def unit_of(launch: LaunchDirectory) -> str:
    """The name of a launch's unit, where it has one: no other launch, run or state folder has the same."""
    folder = os.path.realpath(launch.path)  # of a folder that may be gone
    return f"ddconsole-launch-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}-{launch.path.name}.service"


def members_of(launch: LaunchDirectory) -> set[ProcessIdentity]:
    """Living processes of a launch, without the one that asks."""
    found = members_by_folder(launch.path, launch.server_log)
    if Path(BOOTED_BY_SYSTEMD).is_dir():
        found |= members_by_cgroup(unit_of(launch))
    recorded = {one for one in recorded_processes(launch) if one.alive()}
    if recorded:
        found |= recorded | descendants(*(one.pid for one in recorded))
    return {one for one in found if one.pid != os.getpid()}


def record_processes(launch: LaunchDirectory, processes: Iterable[ProcessIdentity]) -> None:
    """Write down who belongs to a launch, for those who come after its runner. Not synced: a reboot ends them all.

    Raises:
        OSError: it cannot be written.
    """
    known = sorted((one.boot, one.pid, one.started) for one in processes)
    temporary = launch.processes.with_suffix(".part")
    temporary.write_text(json.dumps(known))
    temporary.rename(launch.processes)


def recorded_processes(launch: LaunchDirectory) -> set[ProcessIdentity]:
    """Who was written down; empty where nobody was, or where the file cannot be read."""
    found: set[ProcessIdentity] = set()
    with contextlib.suppress(OSError, ValueError, TypeError):
        for boot, pid, started in json.loads(launch.processes.read_bytes()):
            found.add(ProcessIdentity(str(boot), int(pid), int(started)))
    return found
