"""The probe's process: one JSON line of `HostState` a sample, until its standard input closes."""

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ddconsole.core.clock import clock_from_environment
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.probe.host_text import host_lines
from ddconsole.probe.rehearsed import probed_machine
from ddconsole.probe.sampler import HostSampler

_PR_SET_PDEATHSIG = 1
_FIRST_INTERVAL = 0.2
"""Seconds between the two samples of `--once`: a CPU percentage needs an interval."""


def main() -> int:
    """Sample until standard input closes, or once."""
    options = _options()
    machine = probed_machine()
    clock = clock_from_environment()
    sampler = HostSampler(machine.nvml, clock.now, options.root or machine.root, tuple(options.disk), machine.simulated)
    if options.once or options.text:
        sampler.sample()
        time.sleep(_FIRST_INTERVAL)
        state = sampler.sample()
        _write("\n".join(host_lines(state, options.width)) if options.text else _line(state))
        return 0
    _end_with_parent()
    interval = clock.real_seconds(options.interval)
    due = time.monotonic()
    while True:
        try:
            _write(_line(sampler.sample()))
        except BrokenPipeError:
            os._exit(0)  # nobody reads; the interpreter would complain while flushing the same pipe
        due = max(due + interval, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ddconsole.probe", description="Print what this machine is.")
    parser.add_argument("--once", action="store_true", help="one sample as JSON, then end")
    parser.add_argument("--text", action="store_true", help="one sample for people, then end")
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
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
