"""Puts work on GPUs, with the torch of the serving environment: copies, known products, peer copies, all-reduces.

Run as a script by the serving environment's interpreter, with a JSON object as its argument: `gpus` (numbers as torch
sees them), `pairs`, `groups`, `seconds` for each part. It prints a JSON line with what torch is, one when it begins a
part, and one with its figures. Standard library and torch only.
"""

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

_BYTES = 256 << 20
_SIZE = 4096
_GROUP_DEADLINE = 90.0
"""Seconds for all ranks of a group, the import of torch included."""
_GRACE = 2.0
"""Seconds to wait for a killed rank: one that is stuck in the driver never ends."""


def main(arguments: list[str]) -> int:
    """All parts, one after the other."""
    order = json.loads(arguments[0])
    try:
        torch = importlib.import_module("torch")  # may be missing, which is an answer
    except ImportError as problem:
        _say({"problem": f"no torch in the serving environment: {problem}"})
        return 0
    about = _about(torch)
    _say({"torch": about})
    if not about["available"]:
        _say({"problem": f"torch of the serving environment sees no GPU{about['said'] and ': '}{about['said']}"})
        return 0
    for gpu in order["gpus"]:
        _say({"begin": "copy", "gpu": gpu})
        _say({"copy": _copies(torch, gpu, order["seconds"]), "gpu": gpu})
    for gpu in order["gpus"]:
        _say({"begin": "compute", "gpu": gpu})
        _say({"compute": _products(torch, gpu, order["seconds"]), "gpu": gpu})
    for first, second in order["pairs"]:
        _say({"begin": "peer", "pair": [first, second]})
        _say({"peer": _peer(torch, first, second), "pair": [first, second]})
    for group in order["groups"]:
        _say({"begin": "all-reduce", "group": group})
        _say({"all-reduce": _all_reduce(group), "group": group})
    _say({"done": True})
    return 0


def _about(torch: Any) -> dict[str, Any]:
    """What torch is built for and what it sees. Where CUDA does not start it only warns, so that is kept."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
    devices = [
        {"name": torch.cuda.get_device_name(gpu), "capability": list(torch.cuda.get_device_capability(gpu))}
        for gpu in (range(torch.cuda.device_count()) if available else ())
    ]
    return {
        "version": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "available": available,
        "said": str(caught[0].message)[:300] if caught else "",
        "devices": devices,
        "kernels": list(torch.cuda.get_arch_list()) if available else [],
    }


def _copies(torch: Any, gpu: int, seconds: float) -> dict[str, float]:
    """GB/s from the host and back, with pinned memory."""
    host = torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(_BYTES, dtype=torch.uint8, device=f"cuda:{gpu}")
    found = {}
    for name, source, target in (("to_gpu", host, there), ("from_gpu", there, host)):
        target.copy_(source)
        torch.cuda.synchronize(gpu)
        began, moved = time.monotonic(), 0
        while time.monotonic() - began < seconds / 2:
            for _ in range(4):
                target.copy_(source, non_blocking=True)
                moved += _BYTES
            torch.cuda.synchronize(gpu)
        found[name] = moved / (time.monotonic() - began) / 1e9
    return found


def _products(torch: Any, gpu: int, seconds: float) -> dict[str, Any]:
    """TFLOP/s, and whether whole numbers come out exactly as on the CPU."""
    device = f"cuda:{gpu}"
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randint(-4, 5, (512, 512), generator=generator).float() for _ in range(2))
    exact = bool(torch.equal((a.to(device) @ b.to(device)).cpu(), a @ b))
    large = torch.randn(_SIZE, _SIZE, device=device, dtype=torch.bfloat16)
    large @ large
    torch.cuda.synchronize(gpu)
    began, times = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(20):
            large @ large
            times += 1
        torch.cuda.synchronize(gpu)
    return {"tflops": times * 2 * _SIZE**3 / (time.monotonic() - began) / 1e12, "exact": exact}


def _peer(torch: Any, first: int, second: int) -> dict[str, Any]:
    """GB/s from one GPU to another, and whether the bytes arrive."""
    source = torch.randint(0, 255, (_BYTES,), dtype=torch.uint8, device=f"cuda:{first}")
    target = torch.zeros(_BYTES, dtype=torch.uint8, device=f"cuda:{second}")
    target.copy_(source)
    torch.cuda.synchronize(second)
    exact = bool(torch.equal(target.cpu(), source.cpu()))
    began = time.monotonic()
    for _ in range(8):
        target.copy_(source)
    torch.cuda.synchronize(first)
    torch.cuda.synchronize(second)
    return {"rate": 8 * _BYTES / (time.monotonic() - began) / 1e9, "exact": exact}


def _all_reduce(group: list[int]) -> dict[str, Any]:
    """What the ranks of a group measured, or why not; they are ended at their deadline."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **os.environ,
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET",
            "NCCL_DEBUG_FILE": str(folder / "nccl.%p"),
        }
        script = str(Path(__file__).with_name("collective_child.py"))
        ranks = []
        for rank, gpu in enumerate(group):
            order = {"gpu": gpu, "rank": rank, "world": len(group), "meet": str(folder / "meet")}
            with (folder / f"out{rank}").open("wb") as out, (folder / f"err{rank}").open("wb") as err:
                argv = [sys.executable, script, json.dumps(order)]
                ranks.append(subprocess.Popen(argv, env=environment, stdout=out, stderr=err))
        return {**_outcome(ranks, folder), "ways": _ways(folder)}


def _outcome(ranks: "list[subprocess.Popen[bytes]]", folder: Path) -> dict[str, Any]:
    ends = time.monotonic() + _GROUP_DEADLINE
    while time.monotonic() < ends and any(rank.poll() is None for rank in ranks):
        if any(rank.returncode for rank in ranks):
            break  # the others would wait for it until their deadline
        time.sleep(0.1)
    codes = [rank.returncode for rank in ranks]
    for rank in ranks:
        if rank.returncode is None:
            rank.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.wait(_GRACE)
    broken = [number for number, code in enumerate(codes) if code]
    if broken:
        said = (folder / f"err{broken[0]}").read_text(errors="replace").strip().splitlines()
        telling = [line for line in said if "Error" in line] or said
        return {"problem": f"rank {broken[0]} ended with {codes[broken[0]]}: {''.join(telling[-1:])[-300:]}"}
    if None in codes:
        return {"hung": _GROUP_DEADLINE}
    lines = (folder / "out0").read_text(errors="replace").splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return found[-1] if found else {"problem": "the first rank said nothing"}


def _ways(folder: Path) -> dict[str, int]:
    """By which way NCCL says that its channels go: `P2P/CUMEM`, `SHM/direct/direct`, `NET/Socket`, ..."""
    found: Counter[str] = Counter()
    for path in folder.glob("nccl.*"):
        found.update(re.findall(r" via ([A-Z]\w+(?:/\w+)*)", path.read_text(errors="replace")))
    return dict(found)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({**value, "at": time.time()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
