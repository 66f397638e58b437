"""Puts work on GPUs, with the torch of the serving environment: copies, products whose results are known, peer copies.

Run as a script by the serving environment's interpreter, with a JSON object as its argument: `gpus` (numbers as torch
sees them), `pairs`, `seconds` for each part. It prints a JSON line when it begins a part, and one with its figures.
Standard library and torch only.
"""

import importlib
import json
import sys
import time
from typing import Any

_BYTES = 256 << 20
_SIZE = 4096


def main(arguments: list[str]) -> int:
    """All parts, one after the other."""
    order = json.loads(arguments[0])
    try:
        torch = importlib.import_module("torch")  # may be missing, which is an answer
    except ImportError as problem:
        _say({"problem": f"no torch in the serving environment: {problem}"})
        return 0
    if not torch.cuda.is_available():
        _say({"problem": "torch of the serving environment sees no GPU"})
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
    _say({"done": True})
    return 0


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


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({**value, "at": time.time()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
