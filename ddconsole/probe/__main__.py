"""The probe's process: one JSON line of `HostState` a sample, until its standard input closes."""

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ddconsole.core.clock import clock_from_environment
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.probe.host_text import host_lines
from ddconsole.probe.inventory import inventory_lines
from ddconsole.probe.rehearsed import probed_machine
from ddconsole.probe.sampler import HostSampler
from ddconsole.probe.watched_sampler import DriverHangs, WatchedSampler

_PR_SET_PDEATHSIG = 1
_FIRST_INTERVAL = 0.2
"""Seconds between the two samples of `--once`: a CPU percentage needs an interval."""


_SHORTEST_INTERVAL = 0.1
"""Real seconds: a rehearsal's clock may run sixty times faster, the machine under it does not."""
_GIVEN_UP = 5
"""Exit status when another process must look: the driver hangs as a whole, or was changed."""


def main() -> int:
    """Sample until standard input closes, or once."""
    options = _options()
    machine = probed_machine()
    clock = clock_from_environment()
    root = options.root or machine.root
    if options.inventory:
        for line in inventory_lines(machine.nvml, clock.now):
            _write(json.dumps(line, separators=(",", ":")))
        return 0
    sampler = WatchedSampler(
        lambda left_out: HostSampler(machine.nvml, clock.now, root, tuple(options.disk), machine.simulated, left_out)
    )
    try:
        if options.once or options.text:
            sampler.sample()
            time.sleep(_FIRST_INTERVAL)
            state = sampler.sample()
            _write("\n".join(host_lines(state, options.width)) if options.text else _line(state))
            sys.stdout.flush()
            os._exit(0)  # a thread that is stuck in the driver must not be waited for
        _end_with_parent()
        _sample_for_ever(sampler, root, max(clock.real_seconds(options.interval), _SHORTEST_INTERVAL))
    except DriverHangs as problem:
        print(problem, file=sys.stderr, flush=True)  # noqa: T201  # the monitor reads it
        os._exit(_GIVEN_UP)
    return 0


def _sample_for_ever(sampler: WatchedSampler, root: Path, interval: float) -> None:
    driver = _driver_file(root)
    due = time.monotonic()
    while True:
        now = _driver_file(root)
        if now != driver:
            raise DriverHangs("the GPU driver was changed under the probe: it begins anew")
        try:
            _write(_line(sampler.sample(quiet=_wanted.quiet)))
        except BrokenPipeError:
            os._exit(0)  # nobody reads; the interpreter would complain while flushing the same pipe
        due = max(due + interval, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)


def _driver_file(root: Path) -> str:
    """The kernel module's word on its version; the library in this process stays that of the module before."""
    try:
        return (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return ""


@dataclass
class _Wanted:
    quiet: bool = False


_wanted = _Wanted()
"""What standard input asked for."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ddconsole.probe", description="Print what this machine is.")
    parser.add_argument("--once", action="store_true", help="one sample as JSON, then end")
    parser.add_argument("--text", action="store_true", help="one sample for people, then end")
    parser.add_argument("--inventory", action="store_true", help="settings and health, a JSON line a step, then end")
    parser.add_argument("--width", type=int, default=80, help="columns of --text")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between samples")
    parser.add_argument("--root", type=Path, help="where /sys and /proc are looked for")
    parser.add_argument("--disk", action="append", default=[], help="a path whose file system is reported too")
    return parser.parse_args()


def _line(state: HostState) -> str:
    return json.dumps(host_state_to_json(state), separators=(",", ":"))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """Die with the parent, also when a call of the driver hangs: a thread watches standard input."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    """`quiet on` and `quiet off`, a line each; its end is ours."""
    rest = b""
    while data := os.read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _wanted.quiet = line == b"quiet on"
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
