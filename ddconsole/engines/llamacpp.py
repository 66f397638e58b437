"""The engine llama.cpp: `llama-server`, and its look-alike over the PyPI package xllamacpp."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines import llamacpp_http
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
from ddconsole.engines.llamacpp_flags import OWNED, server_command
from ddconsole.engines.llamacpp_log import LlamaLog
from ddconsole.engines.openai_api import sampling_fields

_LOOK_ALIKE = "xllamacpp_server"


class LlamaCpp:
    """llama.cpp's ways."""

    kind = "llamacpp"
    owned_flags = OWNED
    stop_steps: Sequence[StopStep] = (
        # With a stream open the first SIGTERM often deadlocks in its own handler; the second one ends it.
        StopStep("asked (SIGTERM)", signal.SIGTERM, whole_tree=False, grace=2.0),
        StopStep("asked again (SIGTERM)", signal.SIGTERM, whole_tree=False, grace=1.0),
        StopStep("killed", signal.SIGKILL, whole_tree=True, grace=5.0),
    )

    def default_command(self, python: str) -> tuple[str, ...]:
        """See `Engine`. The look-alike as a plain file, so that the interpreter needs xllamacpp and nothing of ours."""
        return (python, str(Path(__file__).with_name(f"{_LOOK_ALIKE}.py")))

    def help_command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """See `Engine`."""
        return (*command, "--help")

    def flags_of_help(self, text: str) -> frozenset[str]:
        """See `Engine`."""
        return options_of_help(text)

    def build_command(self, command: tuple[str, ...]) -> tuple[str, ...] | None:
        """See `Engine`. llama-server tells its build number and commit, and no JSON."""
        ours = any(Path(word).stem == _LOOK_ALIKE or word.endswith(f".{_LOOK_ALIKE}") for word in command)
        return (*command, "--build-json" if ours else "--version")

    def server_command(self, start: ServerStart) -> ServerCommand:
        """See `Engine`."""
        return server_command(start)

    def log_reader(self) -> LogReader:
        """See `Engine`."""
        return LlamaLog()

    async def check_ready(self, api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
        """See `Engine`."""
        return await llamacpp_http.check_ready(api, start, log)

    async def counters(self, api: ServerApi) -> Counters | None:
        """See `Engine`."""
        return await llamacpp_http.counters(api)

    async def running_requests(self, api: ServerApi) -> int | None:
        """See `Engine`."""
        return await llamacpp_http.running_requests(api)

    async def flush_cache(self, api: ServerApi) -> Flush:
        """See `Engine`."""
        return await llamacpp_http.flush_cache(api)

    def request_body(self, start: ServerStart, point: WorkloadPoint) -> dict[str, Any]:  # noqa: ARG002  # the protocol's
        """See `Engine`. Prefixes are reused in conversations only, where that is what is measured."""
        body = sampling_fields(point)
        body["cache_prompt"] = point.kind == "conversation"
        body["timings_per_token"] = False
        return body
