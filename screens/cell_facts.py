"""What is known about one cell, for saying it."""

from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.host_state import HostState
from ddconsole.core.row_text import Baselines, LiveFigures
from ddconsole.core.run_state import CellRow, LaunchRow, RunState
from ddconsole.core.sweep import Deployment


@dataclass(frozen=True, slots=True)
class CellFacts:
    """All that is said about one cell."""

    row: CellRow
    state: RunState
    baselines: Baselines
    now: float
    live: LiveFigures
    host: HostState | None
    age: float | None
    """Seconds since anything was heard, when the link is not up."""
    left: float | None = None
    """Seconds that one round of the cell is foretold to take, from its beginning."""
    basis: str = ""
    """What that is taken from."""
    steers: bool = True
    """This console may give commands: it has control, or nobody else has."""
    may_take: bool = False
    """It may take control."""

    @property
    def deployment(self) -> Deployment:
        """What its server is started with."""
        return self.state.deployments[self.row.cell.deployment]

    @property
    def launch(self) -> LaunchRow | None:
        """The launch it runs on, ran on last, or was blocked by; else the live one of its deployment."""
        if isinstance(self.row.state, st.Blocked):
            return self.state.launches.get(self.row.state.launch)
        latest = self.row.latest()
        if latest is not None:
            return self.state.launches.get(latest.launch)
        live = self.state.live_launch()
        return live if live is not None and live.deployment == self.row.cell.deployment else None
