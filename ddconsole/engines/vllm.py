"""The engine vLLM: `vllm serve`."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines import vllm_http
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
from ddconsole.engines.vllm_flags import OWNED, server_command
from ddconsole.engines.vllm_log import VllmLog

_BUILD = """
import importlib.metadata, importlib.util, json
distribution = importlib.metadata.distribution("vllm")
origin = distribution.read_text("direct_url.json")
told = {"engine": "vllm", "version": distribution.version, "file": importlib.util.find_spec("vllm").origin}
told["torch"] = importlib.metadata.version("torch")
if origin:
    told["origin"] = json.loads(origin)
print(json.dumps(told))
"""
"""Reads metadata only: importing vLLM takes ten seconds and more."""


class Vllm:
    """vLLM's ways."""

    kind = "vllm"
    owned_flags = OWNED
    stop_steps: Sequence[StopStep] = (
        StopStep("asked (SIGTERM)", signal.SIGTERM, whole_tree=False, grace=10.0),
        # A SIGTERM while it starts is lost (facts: engines-observed.md, section 4).
        StopStep("asked again (SIGTERM)", signal.SIGTERM, whole_tree=True, grace=5.0),
        StopStep("killed", signal.SIGKILL, whole_tree=True, grace=5.0),
    )

    def default_command(self, python: str) -> tuple[str, ...]:
        """See `Engine`. The script stands beside the interpreter of the environment that it was installed into."""
        return (str(Path(python).with_name("vllm")), "serve")

    def help_command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """See `Engine`. Without `=all` only the names of groups are printed."""
        return (*command, "--help=all")

    def flags_of_help(self, text: str) -> frozenset[str]:
        """See `Engine`."""
        return options_of_help(text)

    def build_command(self, command: tuple[str, ...]) -> tuple[str, ...] | None:
        """See `Engine`. Asked of the interpreter beside the `vllm` script; another command's is not guessed."""
        script = Path(command[0])
        if script.name != "vllm" or not script.is_absolute():
            return None
        return (str(script.with_name("python")), "-c", _BUILD)

    def server_command(self, start: ServerStart) -> ServerCommand:
        """See `Engine`."""
        return server_command(start)

    def log_reader(self) -> LogReader:
        """See `Engine`."""
        return VllmLog()

    async def check_ready(self, api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
        """See `Engine`."""
        return await vllm_http.check_ready(api, start, log)

    async def counters(self, api: ServerApi) -> Counters | None:
        """See `Engine`."""
        return await vllm_http.counters(api)

    async def running_requests(self, api: ServerApi) -> int | None:
        """See `Engine`."""
        return await vllm_http.running_requests(api)

    async def flush_cache(self, api: ServerApi) -> Flush:
        """See `Engine`."""
        return await vllm_http.flush_cache(api)

    def request_body(self, start: ServerStart, point: WorkloadPoint) -> dict[str, Any]:  # noqa: ARG002  # the protocol's
        """See `Engine`."""
        return sampling_fields(point)
