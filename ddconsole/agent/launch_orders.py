"""Making launch orders: a port, a name of its own, and what the build is and knows."""

import hashlib
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddconsole.agent.engine_watch import EngineWatch
from ddconsole.core.host_state import HostState
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import NextLaunch
from ddconsole.core.wire import Submission
from ddconsole.engines.engine import Engine
from ddconsole.probe.monitor import ProbeProblem, one_sample
from ddconsole.runner.durable import write_whole
from ddconsole.runner.order import LaunchOrder, order_to_bytes
from ddconsole.runner.run_directory import LaunchDirectory

logger = logging.getLogger(__name__)


class LaunchOrders:
    """Orders for the launches of one run."""

    def __init__(self, submission: Submission, engine: Engine, host: Callable[[], HostState | None]) -> None:
        self._submission = submission
        self._host = host
        self._texts_sha256 = _digest(submission.texts)
        self.watch = EngineWatch(submission, engine)

    async def build(self) -> Mapping[str, Any]:
        """Version and commit of the build; empty where it does not tell."""
        return await self.watch.build()

    async def order(self, due: NextLaunch, state: RunState) -> LaunchOrder:
        """The order of the launch that comes next."""
        known_flags = await self.watch.known_flags()
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
            known_flags=tuple(sorted(known_flags)) if known_flags is not None else None,
            fingerprint_context={
                "texts": self._texts_sha256,
                "model": {**submission.model, "files": _digest(state.engine.get("model"))},
                "build": {
                    **state.engine.get("build", {}),
                    "packages": _digest(state.engine.get("packages")),
                    "files": _digest(state.engine.get("files")),
                    "environment": state.engine.get("environment", {}),
                },
                "driver": host.driver.value if host else None,
            },
            gpu_uuids=_uuids(host, deployment.placement.gpus),
        )

    @property
    def seen(self) -> HostState | None:
        """The machine as it was sampled last."""
        return self._host()

    async def host(self) -> HostState | None:
        """The machine as it was sampled last, else now; None when it cannot be had."""
        return self._host() or await _sample()

    def write(self, order: LaunchOrder, folder: LaunchDirectory) -> None:
        """Write `launch.json`."""
        write_whole(folder.order, order_to_bytes(order))


async def _sample() -> HostState | None:
    try:
        return await one_sample()
    except ProbeProblem as problem:
        logger.warning("no sample of the machine: %s", problem)
        return None


def _digest(value: object) -> str | None:
    """Of a JSON value; None where there is nothing."""
    if not value:
        return None
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


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
