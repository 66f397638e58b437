"""A `pynvml` that answers from a recording, for whole processes of ours: the console's, the agent's and the probe's.

The module is found before the real one by PYTHONPATH. It answers as recorded; temperatures of all GPUs move with the
time; and while the file `stall` is there, power of GPU 1 is not told: the call waits, as it does in a hung driver.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

import ddconsole
from ddconsole.link.local_agent import AgentCommand, LocalAgentRoute

_MODULE = """
import importlib.util, json, pathlib, sys, time
_here = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location("_real_pynvml", {real!r})
_real = importlib.util.module_from_spec(_spec)
sys.modules["_real_pynvml"] = _real
_spec.loader.exec_module(_real)
globals().update({{name: value for name, value in vars(_real).items() if not name.startswith("__")}})
from ddconsole.probe.recording import RecordedNvml
_recorded = RecordedNvml(json.loads((_here / "recording.json").read_text()))
def _told(name):
    def call(*arguments):
        while name == "nvmlDeviceGetPowerUsage" and arguments[0] == 1 and (_here / "stall").exists():
            time.sleep(0.05)
        if name == "nvmlDeviceGetTemperature":
            return 30 + int(time.time()) % 40
        try:
            return getattr(_recorded, name)(*arguments)
        except AttributeError:
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED) from None
    return call
for _name in [name for name in globals() if name.startswith("nvml")]:
    globals()[_name] = _told(_name)
"""


class MadeUpNvml:
    """A folder with the module, to be put on PYTHONPATH."""

    def __init__(self, folder: Path, recording: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "recording.json").write_text(json.dumps(recording))
        (folder / "pynvml.py").write_text(_MODULE.format(real=pynvml.__file__))

    async def start_agent(self, state: Path, runs: Path) -> None:
        """Start this machine's agent so that it and its probe find the module; a console finds the agent."""
        paths = f"{self.folder}{os.pathsep}{Path(ddconsole.__file__).parent.parent}"
        argv = (sys.executable, "-m", "ddconsole.agent", "--runs", str(runs))
        session = await LocalAgentRoute(state, AgentCommand(argv, {"PYTHONPATH": paths})).open()
        await session.close()

    def stall(self) -> None:
        """From now on the driver does not come back from a call about GPU 1."""
        (self.folder / "stall").touch()

    def go_on(self) -> None:
        """It comes back."""
        (self.folder / "stall").unlink(missing_ok=True)
