"""CPU and imports of `ddconsole status --short`, and of starting each verb's parser. Prints JSON."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

_RUNS = 10
_HEAVY = ("textual", "asyncssh", "aiohttp", "pydantic", "numpy")
_PROGRAM = """
import json, sys
from ddconsole.cli import main
main(["status", "--short"])
print(json.dumps([name for name in %r if name in sys.modules]), file=sys.stderr)
"""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run-1"
        folder.mkdir()
        status = {"run": "run-1", "phase": "running", "counts": {"done": 3, "pending": 2}, "cells": 5, "left": 120.0}
        (folder / "status.json").write_text(json.dumps(status))
        environment = {**os.environ, "DDCONSOLE_RUNS": name}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        loaded: list[str] = []
        for _ in range(_RUNS):
            argv = [sys.executable, "-c", _PROGRAM % (_HEAVY,)]
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
            loaded = json.loads(done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / _RUNS
    print(json.dumps({"status_short_cpu_ms": round(cpu * 1000, 1), "limit_ms": 150, "heavy_modules": loaded}))


if __name__ == "__main__":
    main()
