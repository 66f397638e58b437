"""Room for results and logs."""

from pathlib import PurePath

from ddconsole.preflight.check import Check, Verdict, failed, passed, warned
from ddconsole.preflight.facts import Facts

_GIB = 1024**3
_FEW_INODES = 1000
_COMFORTABLE = 3
"""Times what is needed, under which it is a warning."""


async def _run(facts: Facts) -> Verdict:
    needed = facts.plan.disk_needed_bytes
    # What is accepted of it holds before a run's own folder is there and afterwards, and for the next run too.
    where = str(PurePath(facts.plan.run_directory).parent)
    room = await facts.machine.disk_room(facts.plan.run_directory)
    inodes = "not counted" if room.free_inodes is None else f"{room.free_inodes:,}"
    evidence = [f"statvfs {room.path}: {room.free_bytes:,} bytes and {inodes} inodes free"]
    expected = f"{needed / _GIB:.1f} GiB free and writable"
    observed = f"{room.free_bytes / _GIB:.1f} GiB free under {room.path}"
    if not room.writable:
        remedy = f"give this user the right to write {room.path}, or mount it writable"
        return failed(f"{room.path} cannot be written", expected, remedy, evidence, where)
    if room.free_bytes < needed:
        remedy = "make room there (old runs, logs), or choose another place for runs"
        return failed(observed, expected, remedy, evidence, where)
    if room.free_inodes is not None and room.free_inodes < _FEW_INODES:
        remedy = "remove many small files there"
        return failed(f"only {room.free_inodes} inodes free under {room.path}", expected, remedy, evidence, where)
    if room.free_bytes < _COMFORTABLE * needed:
        return warned(observed, f"better {_COMFORTABLE * needed / _GIB:.0f} GiB", "make room soon", evidence, where)
    return passed(observed, expected, evidence)


CHECK = Check("disk.space", "results and logs can be written", _run)
