"""Exporting two thousand cells without TeX: CPU time and memory. Prints JSON.

The cells are of one run on disk: eight methods, three tensor-parallel sizes, 25 requests a cell with all their chunk
times and texts, as llama.cpp and SGLang give them: about two hundred megabytes of attempt files.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from ddconsole.core import events as ev
from ddconsole.core.attempt_file import AttemptFile
from ddconsole.core.sweep import Cell, Deployment, Placement, Speculative
from tests.report.sample_runs import GAIN, SampleRun, attempt_file, begin, file_bytes, single, start_launch

CELLS = 2000
_METHODS = [name for name in GAIN if name != "ngram"]
_TEXT = "the quick brown fox jumps over the lazy dog and then it goes on "

_EXPORT = """
import json, resource, sys, time
from pathlib import Path
from ddconsole.report.export import export_run
before = time.process_time()
report = export_run(Path(sys.argv[1]), Path(sys.argv[2]), lambda _: None, make_pdf=False)
used = time.process_time() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
written = sum(path.stat().st_size for path in report.files)
told = {"files": len(report.files), "cpu_seconds": round(used, 2), "peak_mib": round(peak, 1)}
print(json.dumps(told | {"written_mib": round(written / 2**20, 1)}))
"""


def deployments() -> list[Deployment]:
    found: list[Deployment] = []
    for size in (1, 4, 8):
        for method in _METHODS:
            budget = int(method.removeprefix("ddtree-b")) if method.startswith("ddtree") else None
            kind = "ddtree" if budget else "dflash"
            speculative = None if method == "ar" else Speculative(kind, budget=budget, block_size=16)
            name = f"d{len(found) + 1:02}"
            found.append(Deployment(name, method, size, 8, {}, {}, Placement(tuple(range(size))), speculative))
    return found


def write_run(folder: Path, cells: int) -> int:
    """A run directory; the bytes of its attempt files."""
    sample, total = SampleRun(), 0
    servers = deployments()
    lengths = [64 + 8 * number for number in range(-(-cells // len(servers)))]
    asked = [(server, single(length, 5)) for server in servers for length in lengths][:cells]
    rows = [Cell(f"c{number:04}", server.id, point) for number, (server, point) in enumerate(asked, start=1)]
    begin(sample, servers, rows)
    by_id = {server.id: server for server in servers}
    launch, before = 0, ""
    for cell in rows:
        server = by_id[cell.deployment]
        if server.id != before:
            launch, before = launch + 1, server.id
            start_launch(sample, launch, server, 1)
        raw = file_bytes(_with_all_chunks(sample, cell, server, launch))
        path = folder / "cells" / cell.id / "1.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(raw)
        total += len(raw)
        figures = json.loads(raw)["figures"]
        sample.tell(ev.AttemptStarted(cell.id, 1, launch, 1, 0))
        sample.tell(ev.AttemptDone(cell.id, 1, launch, hashlib.sha256(raw).hexdigest(), "f" * 64, figures, ()))
    sample.write(folder)
    return total


def _with_all_chunks(sample: SampleRun, cell: Cell, server: Deployment, launch: int) -> AttemptFile:
    file = attempt_file(sample, cell, server, 1, launch, 1)
    requests = tuple(
        replace(
            one,
            chunk_gaps_us=(one.chunk_gaps_us[0],) * (one.chunks - 1),
            text=(_TEXT * 40)[: 4 * (one.output_tokens or 0)],
        )
        for one in file.requests
    )
    return replace(file, requests=requests)


def main() -> None:
    """Write, export in a process of its own, tell."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        total = write_run(run, CELLS)
        argv = [sys.executable, "-c", _EXPORT, str(run), str(Path(folder) / "report")]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        print(json.dumps({"cells": CELLS, "attempts_mib": round(total / 2**20, 1)} | json.loads(done.stdout)))


if __name__ == "__main__":
    main()
