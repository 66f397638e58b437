"""All-reduce between the GPUs of one group, with the NCCL of the serving environment's torch.

Run as a script, once for each rank, with a JSON object as its argument: `gpu` (number as torch sees it), `rank`,
`world`, and `meet`, a file that does not exist yet. The first rank prints a JSON line with what was measured. Standard
library and torch only.
"""

import importlib
import json
import sys
import time
from datetime import timedelta
from typing import Any

SMALL, LARGE = 32 << 10, 128 << 20
"""Bytes: what a decode step reduces, and what shows the link's rate."""
_WARM = 5
_TIMES = {SMALL: 200, LARGE: 10}
_DEADLINE = 60.0
"""Seconds for one collective."""


def main(arguments: list[str]) -> int:
    """Meet the other ranks, reduce, and say how fast and whether it was right."""
    order = json.loads(arguments[0])
    torch = importlib.import_module("torch")  # not a dependency of ours: the serving environment has it
    distributed = importlib.import_module("torch.distributed")
    rank, world = order["rank"], order["world"]
    torch.cuda.set_device(order["gpu"])
    distributed.init_process_group(
        "nccl",
        init_method=f"file://{order['meet']}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=_DEADLINE),
    )
    exact, seconds = True, {}
    for size in (SMALL, LARGE):
        values = torch.full((size // 4,), float(rank + 1), device=f"cuda:{order['gpu']}")
        distributed.all_reduce(values)
        exact = exact and bool((values == world * (world + 1) // 2).all())
        seconds[size] = _time(torch, distributed, torch.ones_like(values), _TIMES[size])
    right = torch.tensor([1.0 if exact else 0.0], device=f"cuda:{order['gpu']}")
    distributed.all_reduce(right)
    if rank == 0:
        moved = 2 * (world - 1) / world * LARGE  # bytes over each link, as nccl-tests counts its bus bandwidth
        found = {
            "exact": int(right.item()) == world,
            "latency_us": seconds[SMALL] * 1e6,
            "rate": moved / seconds[LARGE] / 1e9,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    distributed.destroy_process_group()
    return 0


def _time(torch: Any, distributed: Any, values: Any, times: int) -> float:
    """Seconds of one all-reduce, the mean of many."""
    for _ in range(_WARM):
        distributed.all_reduce(values)
    torch.cuda.synchronize()
    distributed.barrier()
    began = time.monotonic()
    for _ in range(times):
        distributed.all_reduce(values)
    torch.cuda.synchronize()
    return (time.monotonic() - began) / times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
