"""Units that a plan displaces: which launches need their GPU, and when they are to be put back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Deployment


@dataclass(frozen=True, slots=True)
class Displaced:
    """A systemd unit that holds a GPU which launches need."""

    unit: str
    gpu: int | None = None
    """None: every launch needs it stopped."""

    def is_in_the_way_of(self, deployment: Deployment) -> bool:
        """Whether servers of a deployment need its GPU."""
        return self.gpu is None or self.gpu in deployment.placement.gpus


def displaced_of(parts: Iterable[Mapping[str, Any]]) -> tuple[Displaced, ...]:
    """The `displace` of a plan as it was submitted."""
    return tuple(
        Displaced(str(one["unit"]), None if one.get("needs_gpu") is None else int(one["needs_gpu"])) for one in parts
    )


def to_clear_away(state: RunState, displaced: Sequence[Displaced], deployment: Deployment) -> list[Displaced]:
    """The units that must be stopped before a launch of a deployment; waived ones are the operator's."""
    return [one for one in displaced if one.unit not in state.waived and one.is_in_the_way_of(deployment)]


def still_needed(state: RunState, one: Displaced) -> bool:
    """Whether a launch that lives or is still to come needs a unit's GPU; a paused sweep may yet go on."""
    live = state.live_launch()
    names = {live.deployment} if live is not None else set()
    if state.phase in (st.RunPhase.RUNNING, st.RunPhase.PAUSED):
        rows = state.cells.values()
        names |= {row.cell.deployment for row in rows if isinstance(row.state, st.Pending | st.Running)}
    return any(one.is_in_the_way_of(state.deployments[name]) for name in names)


def due_back(state: RunState, displaced: Sequence[Displaced], boot: str) -> list[str]:
    """The debts that are to be settled now: nothing needs the GPU any more, the operator asked, or the host rebooted.

    A sweep that goes on after a reboot by itself, and needs the GPU, keeps them: they are stopped again anyhow.
    """
    if state.live_launch() is not None:
        return []
    needed = {one.unit for one in displaced if still_needed(state, one)}
    rests = state.phase is not st.RunPhase.RUNNING
    return [
        name
        for name, debt in state.debts.items()
        if name not in needed or (rests and (debt.asked or debt.boot not in {"", boot}))
    ]
