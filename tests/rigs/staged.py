"""Models to be staged, and waiting for a staging."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sweeps import cells, deployment
from sweeps import submission as any_submission

from ddconsole.agent.staging import RUNNING, Staging
from ddconsole.core.clock import SystemClock
from ddconsole.core.wire import StageStatus, Submission


def safetensors(size: int, byte: bytes = b"\x01") -> bytes:
    """A file with one tensor of `size` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + byte * size


def model(folder: Path, size: int) -> Path:
    """A model's folder, with a hidden one in it as downloads leave them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors(size))
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").write_text("not a part of it")
    return folder


def names(folder: Path) -> list[str]:
    """Names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def submission(to: Path, source: object, draft: Path | None = None) -> Submission:
    """A submission whose model is to be brought there."""
    return replace(
        any_submission([deployment("d01")], cells("d01", 1)),
        model={"path": str(to), "draft": str(draft) if draft else None, "source": source},
    )


def staging_of(folder: Path) -> Staging:
    """One with its manifests below this folder."""
    return Staging(folder / "manifests", "boot-1", SystemClock())


async def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for threads and processes, which set no event."""
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110  # threads and processes set no event
            await asyncio.sleep(0.005)


async def ended(staging: Staging) -> StageStatus:
    """Its state when it is over."""
    await until(lambda: staging.status.phase not in RUNNING)
    return staging.status
