"""Making launch orders: a port, a name of its own, and what the build is and knows, asked once."""

import asyncio
import hashlib
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddconsole.core.host_state import HostState
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import NextLaunch
from ddconsole.core.wire import Submission
from ddconsole.engines.engine import Engine
from ddconsole.probe.monitor import ProbeProblem, one_sample
from ddconsole.runner.durable import write_whole
from ddconsole.runner.order import LaunchOrder, order_to_bytes
from ddconsole.runner.run_directory import LaunchDirectory

_ASK_DEADLINE = 120.0
"""Real seconds for `--help`: SGLang imports for ten seconds and more before it reads its arguments."""

logger = logging.getLogger(__name__)


class LaunchOrders:
    """Orders for the launches of one run."""

    def __init__(self, submission: Submission, engine: Engine, host: Callable[[], HostState | None]) -> None:
        self._submission = submission
        self._host = host
        self._engine = engine
        self._texts_sha256 = hashlib.sha256(
            json.dumps(submission.texts, sort_keys=True, ensure_ascii=False).encode()
        ).hexdigest()
        self._asked = False
        self._known_flags: frozenset[str] | None = None
        self._build: Mapping[str, Any] = {}

    async def known_flags(self) -> frozenset[str] | None:
        """Option strings of the build's help; None when it could not be asked."""
        await self._ask_once()
        return self._known_flags

    async def build(self) -> Mapping[str, Any]:
        """Version and commit of the build; empty where it does not tell."""
        await self._ask_once()
        return self._build

    async def order(self, due: NextLaunch, state: RunState) -> LaunchOrder:
        """The order of the launch that comes next."""
        await self._ask_once()
        submission = self._submission
        deployment = state.deployments[due.deployment]
        host = await self.host() if deployment.placement.gpus else self._host()
        return LaunchOrder(
            run=submission.run,
            launch=due.number,
            round=due.round,
            deployment=deployment,
            engine=submission.engine,
            model=submission.model,
            served_name=f"{submission.run}-{due.number}",
            port=free_port(submission.protocol.get("port")),
            protocol=submission.protocol,
            simulated=submission.rehearsal is not None,
            baseline=submission.baseline,
            known_flags=tuple(sorted(self._known_flags)) if self._known_flags is not None else None,
            fingerprint_context={
                "texts": self._texts_sha256,
                "model": submission.model,
                "build": self._build,
                "driver": host.driver.value if host else None,
            },
            gpu_uuids=_uuids(host, deployment.placement.gpus),
        )

    async def host(self) -> HostState | None:
        """The machine as it was sampled last, else now; None when it cannot be had."""
        return self._host() or await _sample()

    def write(self, order: LaunchOrder, folder: LaunchDirectory) -> None:
        """Write `launch.json`."""
        write_whole(folder.order, order_to_bytes(order))

    async def _ask_once(self) -> None:
        if self._asked:
            return
        command = tuple(self._submission.engine["command"])
        text = await self._output(self._engine.help_command(command))
        if text is not None:
            self._known_flags = self._engine.flags_of_help(text) or None
        build_command = self._engine.build_command(command)
        if build_command is not None:
            told = await self._output(build_command)
            self._build = _json_object(told)
        self._asked = True

    async def _output(self, argv: tuple[str, ...]) -> str | None:
        """Standard output and error of a short command of the engine's; None when it cannot be had."""
        env = {key: str(value) for key, value in self._submission.engine.get("env", {}).items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self._submission.engine.get("cwd") or None,
                env={**os.environ, **env},
            )
        except OSError as problem:
            logger.warning("%s: %s", argv[0], problem)
            return None
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _ASK_DEADLINE)
        except TimeoutError:
            process.kill()
            await process.wait()
            return None
        return out.decode(errors="replace") if process.returncode == 0 else None


async def _sample() -> HostState | None:
    try:
        return await one_sample()
    except ProbeProblem as problem:
        logger.warning("no sample of the machine: %s", problem)
        return None


def _uuids(host: HostState | None, gpus: Sequence[int]) -> tuple[str, ...]:
    """What the runner leases. A GPU whose UUID is not known cannot be leased: the gate has said so before."""
    found = [host.gpu(index) for index in gpus] if host else []
    return tuple(gpu.uuid.value for gpu in found if gpu is not None and gpu.uuid.value is not None)


def free_port(wanted: int | None) -> int:
    """The port that the plan names, else one that the system says is free."""
    if wanted:
        return int(wanted)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _json_object(text: str | None) -> Mapping[str, Any]:
    """The last line that is a JSON object: engines print warnings before it."""
    for line in reversed((text or "").splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
