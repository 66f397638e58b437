"""What watching the machine costs: one sample, and the probe's process at two samples a second. Prints JSON.

Uses this machine's GPUs, or where there are none the recorded H200 (then only our own code is measured). The figures
for eight GPUs are scaled: what does not depend on the number of GPUs stays, the rest is multiplied.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import psutil
import pynvml

from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.probe.monitor import probe_command, probe_environment
from ddconsole.probe.nvml import GpuReader
from ddconsole.probe.nvml_calls import Nvml
from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.sampler import HostSampler

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"
SAMPLES = 60


def machine(folder: Path) -> tuple[Nvml, Path, str]:
    """NVML, the root of /sys and /proc, and what they are."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        write_files(json.loads((FIXTURES / "h200x2-files.json").read_text()), folder)
        recording = json.loads((FIXTURES / "h200x2.json").read_text())
        return cast("Nvml", RecordedNvml(recording)), folder, "recorded: our own code alone"
    return cast("Nvml", pynvml), Path("/"), "this machine's GPUs"


def timed(take: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of wall and CPU time, over `SAMPLES` calls a tenth of a second apart."""
    take()
    walls, cpus = [], []
    for _ in range(SAMPLES):
        wall, cpu = time.perf_counter(), time.process_time()
        take()
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
        time.sleep(0.1)
    return {
        "wall_ms_median": round(statistics.median(walls), 3),
        "wall_ms_worst": round(max(walls), 3),
        "cpu_ms_median": round(statistics.median(cpus), 3),
        "cpu_ms_mean": round(statistics.fmean(cpus), 3),
    }


def process_at_two_hertz(seconds: float = 20.0) -> float:
    """CPU of the probe's process in percent of one core, without its start."""
    command = probe_command("--interval", "0.5")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=probe_environment()
    ) as process:
        time.sleep(5)
        watched = psutil.Process(process.pid)
        before = watched.cpu_times()
        time.sleep(seconds)
        after = watched.cpu_times()
        process.kill()
    return round(100 * (after.user + after.system - before.user - before.system) / seconds, 3)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        nvml, root, what = machine(Path(folder))
        sampler = HostSampler(nvml, time.time, root)
        reader = GpuReader(nvml, time.time)
        state: HostState = sampler.sample()
        gpus = max(len(state.gpus), 1)
        whole, quiet = timed(sampler.sample), timed(lambda: sampler.sample(quiet=True))
        driver = timed(lambda: reader.sample(quiet=True))
        line = len(json.dumps(host_state_to_json(state), separators=(",", ":")))
        around = quiet["cpu_ms_mean"] - driver["cpu_ms_mean"]
        process = process_at_two_hertz()
        scaled = round(0.2 * (around + 8 / gpus * driver["cpu_ms_mean"]), 3)
        figures = {
            "machine": what,
            "gpus": gpus,
            "full_sample": whole,
            "quiet_sample": quiet,
            "gpus_alone_quiet": driver,
            "sample_bytes": line,
            "process_cpu_percent_at_2_hz": process,
            "eight_gpus_cpu_percent_at_2_hz_scaled": scaled,
            "budget_percent": 1.0,
            "within_budget": scaled < 1.0,
        }
    json.dump(figures, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
