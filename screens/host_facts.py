"""What the host screen knows: the newest sample, those before it, and who of the run is on which GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.host_state import HostState
from ddconsole.core.run_state import RunState
from screens.spans import shown

GIB = float(1 << 30)
OLD_AFTER = 10.0
"""Seconds after which a sample is said to be old: the agent takes one a second."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the host screen shows."""

    host: str
    machine: HostState | None
    history: Sequence[HostState]
    state: RunState
    now: float

    @property
    def age(self) -> float:
        """Seconds since the sample."""
        return max(0.0, self.now - self.machine.at) if self.machine is not None else 0.0

    @property
    def old(self) -> bool:
        """The values are not of now."""
        return self.age > OLD_AFTER


def gpu_users(state: RunState) -> Mapping[int, str]:
    """Which cell, or which launch, is on which GPU."""
    launch = state.live_launch()
    if launch is None:
        return {}
    deployment = state.deployments[launch.deployment]
    running = state.running_cell()
    on_it = running is not None and isinstance(running.state, st.Running) and running.state.launch == launch.number
    name = running.cell.id if on_it and running is not None else f"launch {launch.number}"
    return {index: f"{name} {shown(deployment.method)}" for index in deployment.placement.gpus}
