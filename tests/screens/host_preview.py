"""The console on a made-up run and machine of so many GPUs, to look at: `python -m tests.screens.host_preview GPUS`.

Its host screen is the third; servers of several sizes are placed so that one group crosses NUMA nodes where it can.
"""

import argparse
import asyncio

from ddconsole.core import events as ev
from ddconsole.core.sweep import Cell, Deployment, Placement, to_json
from screens.app import run_console
from tests.screens import ct200
from tests.screens.fake_feed import FakeFeed

GROUPS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((0,),),
    2: ((1,), (0, 1)),
    8: ((7,), tuple(range(8)), (2, 3, 4, 5)),
    16: ((15,), (12, 13, 14, 15), tuple(range(4, 12))),
}
"""What servers get, by the number of GPUs; the last is the one that runs."""


def feed_on(gpus: int) -> FakeFeed:
    """A run whose last deployment is being measured on a machine with so many GPUs."""
    made = FakeFeed()
    made.emit(ct200.created())
    for number, group in enumerate(GROUPS[gpus], start=1):
        one = Deployment(f"d{number:02}", "ddtree-b16", len(group), 8, {}, {}, Placement(group, "numa"))
        made.emit(ev.DeploymentAdded(to_json(one)))
        made.emit(ev.CellAdded(to_json(Cell(f"c{number:03}", one.id, ct200.points()[0]))))
    running = len(GROUPS[gpus])
    ct200.launch(made, 1, f"d{running:02}")
    made.emit(ev.AttemptStarted(f"c{running:03}", 1, 1, 1, 0))
    made.clock += 31
    busy = GROUPS[gpus][-1]
    made.set_host(*(ct200.machine(made.clock - 240 + at, at, gpus, busy) for at in range(0, 240, 4)))
    return made


async def live(feed: FakeFeed, gpus: int) -> None:
    """Samples, for ever."""
    second = 0
    while True:
        await asyncio.sleep(1)
        second += 1
        feed.clock += 1
        feed.set_host(ct200.machine(feed.clock, second, gpus, GROUPS[gpus][-1]))


def main() -> None:
    """Open it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("gpus", type=int, choices=sorted(GROUPS))
    gpus = parser.parse_args().gpus

    async def opened() -> int:
        feed = feed_on(gpus)
        going = asyncio.create_task(live(feed, gpus))
        code = await run_console(feed)
        going.cancel()
        return code

    raise SystemExit(asyncio.run(opened()))


if __name__ == "__main__":
    main()
