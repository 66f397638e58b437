"""Waiting in tests for what another task or process does."""

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 20.0, what: str = "") -> None:
    """Return when `condition` holds; a test that waits in vain fails with `what`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain {what}"
        await asyncio.sleep(0.01)
