"""The engine SGLang: releases from 0.5.9 on, and their forks."""

import signal
from collections.abc import Sequence
from typing import Any

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines import sglang_http
from ddconsole.engines.engine import (
    Counters,
    Flush,
    LogReader,
    Readiness,
    ServerApi,
    ServerCommand,
    ServerStart,
    StopStep,
)
from ddconsole.engines.flags import options_of_help
from ddconsole.engines.openai_api import sampling_fields
from ddconsole.engines.sglang_flags import OWNED, server_command, speculates
from ddconsole.engines.sglang_log import SglangLog

_BUILD = """
import hashlib, importlib.metadata, importlib.util, json, os, subprocess, sys
sys.path[:] = [path for path in sys.path if path]
spec = importlib.util.find_spec("sglang")
file = spec.origin if spec else None
try: version = importlib.metadata.version("sglang")
except Exception: version = None
out = {"engine": "sglang", "version": version, "file": file, "python": sys.version.split()[0]}
out.update(commit=None, dirty=None, changes=None)
def git(*args):
    command = ["git", "-C", os.path.dirname(file), *args]
    return subprocess.run(command, capture_output=True, timeout=20, check=True).stdout
try:
    git("ls-files", "--error-unmatch", file)
    out["commit"] = git("rev-parse", "HEAD").decode().strip()
    changes = git("diff", "HEAD", "--", ".")
    new = git("ls-files", "-z", "--others", "--exclude-standard", "--", "*.py").split(b"\\0")
    for name in filter(None, new):
        changes += b"new file " + name + open(os.path.join(os.path.dirname(file).encode(), name), "rb").read()
    out["dirty"] = bool(changes)
    out["changes"] = hashlib.sha256(changes).hexdigest() if changes else None
except Exception: pass
out["packages"] = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
print(json.dumps(out))
"""
"""Run by the engine's interpreter. Nothing of SGLang is imported: that takes seconds, and a GPU context."""


class Sglang:
    """SGLang's ways."""

    kind = "sglang"
    owned_flags = OWNED
    stop_steps: Sequence[StopStep] = (
        # SIGTERM drains without limit, and the exit code says nothing. Children follow a killed main process at once.
        StopStep("asked (SIGINT)", signal.SIGINT, whole_tree=False, grace=10.0),
        StopStep("killed", signal.SIGKILL, whole_tree=False, grace=3.0),
        StopStep("tree killed", signal.SIGKILL, whole_tree=True, grace=5.0),
    )

    def default_command(self, python: str) -> tuple[str, ...]:
        """See `Engine`. `sglang serve` is newer; this form exists in every release."""
        return (python, "-m", "sglang.launch_server")

    def help_command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """See `Engine`."""
        return (*command, "--help")

    def flags_of_help(self, text: str) -> frozenset[str]:
        """See `Engine`."""
        return options_of_help(text)

    def build_command(self, command: tuple[str, ...]) -> tuple[str, ...] | None:
        """See `Engine`. The interpreter is the word before `-m`; a script's own interpreter is not guessed."""
        if "-m" not in command or command.index("-m") == 0:
            return None
        return (*command[: command.index("-m")], "-c", _BUILD)

    def server_command(self, start: ServerStart) -> ServerCommand:
        """See `Engine`."""
        return server_command(start)

    def log_reader(self) -> LogReader:
        """See `Engine`."""
        return SglangLog()

    async def check_ready(self, api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
        """See `Engine`."""
        return await sglang_http.check_ready(api, start, log)

    async def counters(self, api: ServerApi) -> Counters | None:
        """See `Engine`."""
        return await sglang_http.counters(api)

    async def running_requests(self, api: ServerApi) -> int | None:
        """See `Engine`."""
        return await sglang_http.running_requests(api)

    async def flush_cache(self, api: ServerApi) -> Flush:
        """See `Engine`."""
        return await sglang_http.flush_cache(api)

    def request_body(self, start: ServerStart, point: WorkloadPoint) -> dict[str, Any]:
        """See `Engine`. Builds that do not know `return_spec_tokens_details` ignore it."""
        body = sampling_fields(point)
        if speculates(start):
            body["return_spec_tokens_details"] = True
        return body
