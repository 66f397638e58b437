"""Memory for the servers beside what stands in tmpfs; room in /dev/shm; nothing left over there; no swapping."""

from ddconsole.preflight.cgroup import MemoryLimit, memory_limit
from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.mounts import mount_of

SHM = "/dev/shm"  # noqa: S108  # the place that is judged, not a temp file
_GIB = 1024**3
_RANK_LEAST, _RANK_EASY = 2 * _GIB, 6 * _GIB
"""Memory of one rank of a GPU server beside its weights: what it needs, and what it may take at its start."""
_CPU_LEAST, _CPU_EASY = _GIB // 4, _GIB
"""Of a server without GPUs, whose weights are memory of their own: less than this starts none."""
_SHM_ROOM = _GIB
"""What NCCL and torch put into shared memory: 10 MB a segment, a segment a channel and peer."""
_LEFTOVERS = ("nccl-", "torch_", "sem.", "psm_", "cuda.shm.", "nvshmem")
_MANY_LEFTOVERS = 100 * 1024**2
_SWAP_PAGES = 256


async def _memory(facts: Facts) -> Verdict:
    """A model in tmpfs is charged to the container: the server is killed for bytes that /dev/shm holds."""
    limit = await memory_limit(facts.machine)
    if limit is None:
        return unknown("neither the control group nor /proc/meminfo says how much memory there is")
    ranks = max((one.tensor_parallel for one in facts.plan.deployments if one.placement.gpus), default=0)
    paths = [path for path in (facts.plan.model, *facts.plan.drafts) if path and await _is_in_memory(facts, path)]
    in_memory = [path for path in paths if await facts.machine.status(path) is not None]
    to_come = [path for path in paths if path not in in_memory]
    least, easy = max(ranks * _RANK_LEAST, _CPU_LEAST), max(ranks * _RANK_EASY, _CPU_EASY)
    evidence = [
        _in_words(limit),
        *([f"processes killed for memory since it began: {limit.killed}"] if limit.killed else []),
        *(f"{path} stands in memory, and is counted as used" for path in in_memory),
        *(f"{path} is not there yet: it will take memory of what is left" for path in to_come),
    ]
    observed = f"{limit.left / _GIB:.1f} of {limit.limit / _GIB:.1f} GiB are left ({limit.source})"
    expected = f"{easy / _GIB:.0f} GiB" + (f" for {ranks} ranks" if ranks else "")
    remedy = (
        "raise the container's memory limit, or stage the model on a disk: what stands in tmpfs counts to the limit"
        if paths
        else "stop what takes the memory, or raise the container's limit"
    )
    if limit.left < least:
        return failed(observed, expected, remedy, evidence)
    if limit.left < easy:
        return warned(observed, expected, remedy, evidence)
    return passed(observed, expected, evidence)


def _in_words(limit: MemoryLimit) -> str:
    parts = f"{limit.shared / _GIB:.1f} in tmpfs and {limit.reclaimable / _GIB:.1f} cache that can go"
    return f"{limit.source}: {limit.limit / _GIB:.1f} GiB, {limit.used / _GIB:.1f} used, of that {parts}"


async def _is_in_memory(facts: Facts, path: str) -> bool:
    mount = await mount_of(facts.machine, path)
    return mount is not None and mount.in_memory


async def _shm_room(facts: Facts) -> Verdict:
    if all(len(one.placement.gpus) < 2 for one in facts.plan.deployments):
        return skipped("no server has several ranks that share memory")
    if await facts.machine.status(SHM) is None:
        remedy = "mount a tmpfs there: ranks cannot find each other without it"
        return failed(f"{SHM} is not there", "a tmpfs", remedy)
    room = await facts.machine.disk_room(SHM)
    evidence = [f"statvfs {room.path}: {room.free_bytes:,} bytes free"]
    expected = f"{_SHM_ROOM / _GIB:.0f} GiB free for NCCL and torch"
    observed = f"{room.free_bytes / _GIB:.1f} GiB free in {SHM}"
    if room.free_bytes < _SHM_ROOM or not room.writable:
        remedy = f"`mount -o remount,size=...` {SHM} (a container forgets it), or remove what is left over there"
        return failed(observed if room.writable else f"{SHM} cannot be written", expected, remedy, evidence, SHM)
    return passed(observed, expected, evidence)


async def _leftovers(facts: Facts) -> Verdict:
    names = [name for name in await facts.machine.list_folder(SHM) if name.startswith(_LEFTOVERS)]
    sizes = {name: await facts.machine.status(f"{SHM}/{name}") for name in names[:2000]}
    total = sum(status.size for status in sizes.values() if status is not None)
    evidence = [f"{SHM}/{name}: {status.size:,} bytes" for name, status in sizes.items() if status is not None]
    expected = f"less than {_MANY_LEFTOVERS // 1024**2} MiB"
    observed = f"{total / 1024**2:.0f} MiB in {len(names)} files of NCCL and torch in {SHM}"
    if total < _MANY_LEFTOVERS:
        return passed(observed, expected, evidence)
    remedy = (
        "servers that were killed left them; a living server needs its own: `fuser -v` each, remove those of nobody"
    )
    return warned(observed, expected, remedy, evidence, SHM)


async def _swap(facts: Facts) -> Verdict:
    before, after = await _swapped(facts), None
    if before is not None:
        await facts.machine.run(("sleep", "1"), 5.0)
        after = await _swapped(facts)
    if before is None or after is None:
        return unknown("/proc/vmstat does not count swapped pages")
    pages = after - before
    evidence = [f"/proc/vmstat pswpin + pswpout: {before} and a second later {after}"]
    if pages > _SWAP_PAGES:
        remedy = "find who takes the memory; a model in tmpfs is swapped out too, and read back in the first requests"
        return warned(f"{pages} pages swapped in a second", "no swapping", remedy, evidence)
    return passed("no swapping", "no swapping", evidence)


async def _swapped(facts: Facts) -> int | None:
    try:
        words = [line.split() for line in (await facts.machine.read_text("/proc/vmstat")).splitlines()]
    except OSError:
        return None
    counts = [int(one[1]) for one in words if len(one) == 2 and one[0] in {"pswpin", "pswpout"}]
    return sum(counts) if counts else None


CHECKS = (
    Check("memory.room", "there is memory for the servers beside what stands in tmpfs", _memory),
    Check("shm.room", "shared memory has room for NCCL and torch", _shm_room),
    Check(
        "shm.leftovers",
        "ended servers left nothing in shared memory",
        _leftovers,
        blocks=("comparison",),
        tier=Tier.STANDARD,
    ),
    Check("memory.swap", "nothing is swapped", _swap, blocks=("comparison",), tier=Tier.STANDARD),
)
