"""A link that fails at random the whole time: reset, silenced, frozen, throttled, every few seconds, by a seed."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from cut_proxy import Cut, CutProxy

EVERY = (2.0, 8.0)
"""Seconds from the beginning of one failure to that of the next."""


class Trouble(StrEnum):
    """What is wrong with the link for a while."""

    RESET = "reset"
    SILENT = "silent drop"
    """Packets vanish for a while; then both sides of what was silenced get a RST."""
    FORGOTTEN = "silent drop for good"
    """Packets vanish for a while; then new connections work, and those of before are never heard of again."""
    FREEZE = "freeze"
    THROTTLE = "throttle"


@dataclass(frozen=True)
class Failure:
    """One of them. Times are seconds."""

    trouble: Trouble
    lasts: float
    """Nothing for a reset."""
    rest: float
    """Until the next one begins."""
    rate: float
    """Bytes a second each way while the link is throttled."""


def failures(seed: int) -> Iterator[Failure]:
    """Without an end; the same ones for the same seed."""
    chooser = random.Random(seed)
    while True:
        trouble, time = chooser.choice(list(Trouble)), chooser.uniform(*EVERY)
        lasts = 0.0 if trouble is Trouble.RESET else chooser.uniform(0.5, time)
        yield Failure(trouble, lasts, time - lasts, chooser.uniform(2_000, 20_000))


@dataclass
class FailingLink:
    """A proxy, and what has happened to it."""

    proxy: CutProxy
    seen: Counter[Trouble] = field(default_factory=Counter)
    """Failures while a connection stood."""

    async def fail(self, seed: int) -> None:
        """One failure after the other, for ever."""
        for one in failures(seed):
            if self.proxy.connections:
                self.seen[one.trouble] += 1
            self._begin(one)
            await asyncio.sleep(one.lasts)
            self._end(one)
            await asyncio.sleep(one.rest)

    def _begin(self, one: Failure) -> None:
        match one.trouble:
            case Trouble.RESET:
                self.proxy.cut(Cut.RESET)
            case Trouble.SILENT | Trouble.FORGOTTEN:
                self.proxy.cut(Cut.SILENT)
            case Trouble.FREEZE:
                self.proxy.freeze()
            case Trouble.THROTTLE:
                self.proxy.rate = one.rate

    def _end(self, one: Failure) -> None:
        match one.trouble:
            case Trouble.SILENT:
                self.proxy.mend()
            case Trouble.FORGOTTEN:
                self.proxy.forget()
            case Trouble.FREEZE:
                self.proxy.thaw()
            case Trouble.THROTTLE:
                self.proxy.rate = None
            case Trouble.RESET:
                pass


@asynccontextmanager
async def failing_link(target: int, seed: int) -> AsyncIterator[FailingLink]:
    """A link to a port of this machine, which fails from now on."""
    async with CutProxy(target).listening() as proxy:
        link = FailingLink(proxy)
        task = asyncio.create_task(link.fail(seed))
        try:
            yield link
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
