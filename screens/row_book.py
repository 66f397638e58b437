"""The rows of the sweep table, kept between two changes, so that one changed cell costs one row."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddconsole.core import states as st
from ddconsole.core.duration import Estimates, estimates_for, launch_left, stream_tokens, waiting
from ddconsole.core.history import History
from ddconsole.core.row_text import Baselines, LiveFigures, RowText, baselines, row_text
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import Deployment, WorkloadPoint
from ddconsole.link.client import LinkPhase
from ddconsole.link.feed import RunFeed


@dataclass(frozen=True)
class RememberedEstimates(Estimates):
    """Estimates that look for the nearest observation once for each kind of cell, not once for each cell."""

    rates: dict[tuple[str | int, ...], float] = field(default_factory=dict)

    def cell_seconds(self, deployment: Deployment, point: WorkloadPoint) -> float:
        """Of one attempt."""
        kind = (point.kind, point.concurrency, point.max_tokens, point.prompts)
        key = (deployment.method, deployment.tensor_parallel, *kind)
        rate = self.rates.get(key)
        if rate is None:
            rate = stream_tokens(point) / Estimates.cell_seconds(self, deployment, point)
            self.rates[key] = rate
        return stream_tokens(point) / rate


def remembered(estimates: Estimates) -> RememberedEstimates:
    """The same estimates, for asking often."""
    return RememberedEstimates(
        estimates.defaults,
        estimates.starts,
        estimates.observations,
        estimates.history,
        estimates.around_cells,
        estimates.pace,
    )


class RowBook:
    """Texts of all cells by id, in the order of the table."""

    def __init__(self, feed: RunFeed, history: History | None = None) -> None:
        self._feed = feed
        self._history = history
        self._state: RunState | None = None
        self._cells: Mapping[str, CellRow] = {}
        self._waiting: tuple[RunState, float, float | None] | None = None
        self.rows: dict[str, RowText] = {}
        self.baselines: Baselines = {}
        self.estimates = remembered(Estimates())
        self.version = 0
        """Counts changes of `rows`."""
        self.arrangement = 0
        """Counts changes of which cells there are, and of their order."""
        self._changed_at: dict[str, int] = {}

    @property
    def link_is_up(self) -> bool:
        """Whether what is live is of now."""
        return self._feed.link.phase is LinkPhase.UP

    def update(self) -> None:
        """Take over what the feed knows now."""
        state = self._feed.state
        changed = self._changed_cells(state)
        if changed:
            self._learn(state, changed)
        running = state.running_cell()
        if running is not None:
            changed.add(running.cell.id)
        if self.rows.keys() != state.cells.keys() or (changed and list(self.rows) != list(state.cells)):
            self.arrangement += 1
            changed = set(state.cells)
        texts = {name: self._text(state, name) for name in changed}
        new = {name: text for name, text in texts.items() if self.rows.get(name) != text}
        if len(changed) == len(state.cells):
            self.rows = {name: texts[name] for name in state.cells}
        else:
            self.rows |= new
        if new:
            self.version += 1
            self._changed_at |= dict.fromkeys(new, self.version)
        self._state, self._cells = state, state.cells

    def changed_since(self, version: int) -> list[RowText]:
        """Rows whose text is newer than a version of the book."""
        return [self.rows[name] for name, at in self._changed_at.items() if at > version and name in self.rows]

    def live(self) -> LiveFigures:
        """What is known of the running cell beside the journal."""
        feed = self._feed
        decode = feed.decode
        return LiveFigures(
            progress=feed.progress,
            rates=tuple(feed.rates),
            acceptance=decode.acceptance_length if decode is not None else None,
            current=self.link_is_up,
        )

    def cell_seconds(self, row: CellRow) -> float:
        """Seconds that one round of a cell is foretold to take; by its own progress once some of it is measured."""
        progress = self._feed.progress
        if isinstance(row.state, st.Running) and progress is not None and progress.cell == row.cell.id:
            elapsed = self._feed.now() - row.state.since
            if progress.requests_done and elapsed > 0:
                return elapsed * progress.requests_planned / progress.requests_done
        return self._estimated(row)

    def _estimated(self, row: CellRow) -> float:
        deployment = self._feed.state.deployments[row.cell.deployment]
        return self.estimates.cell_seconds(deployment, row.cell.point)

    def run_left(self) -> float | None:
        """Seconds until the sweep is through; what waits is summed anew once a second, if the run moved on."""
        now, state = self._feed.now(), self._feed.state
        if self._waiting is None or (self._waiting[0] is not state and now - self._waiting[1] >= 1.0):
            self._waiting = (state, now, waiting(state, self.estimates))
        later = self._waiting[2]
        if later is None:
            return None
        running = state.running_cell()
        rest = 0.0
        if running is not None and isinstance(running.state, st.Running):
            rest = max(0.0, self.cell_seconds(running) - (now - running.state.since))
        return later + rest + launch_left(state, self.estimates, now)

    def _changed_cells(self, state: RunState) -> set[str]:
        if state.cells is self._cells:
            return set()
        before = self._cells
        return {name for name, row in state.cells.items() if before.get(name) is not row}

    def _learn(self, state: RunState, changed: set[str]) -> None:
        """New figures move what is foretold and, where the baseline's change, the speed-ups."""
        measured = [name for name in changed if self._attempts_ended(state.cells[name])]
        if not measured and self._state is not None:
            return
        self.estimates = remembered(estimates_for(state, self._history))
        known = baselines(state)
        if known != self.baselines:
            changed |= {name for name, row in state.cells.items() if isinstance(row.state, st.Done)}
        self.baselines = known
        changed |= {name for name, row in state.cells.items() if isinstance(row.state, st.Pending)}

    def _attempts_ended(self, row: CellRow) -> bool:
        before = self._cells.get(row.cell.id)
        return before is None or len(before.done_attempts()) != len(row.done_attempts())

    def _text(self, state: RunState, name: str) -> RowText:
        row = state.cells[name]
        waits = isinstance(row.state, st.Pending | st.Running)
        left = self.cell_seconds(row) if waits else None
        live = self.live() if isinstance(row.state, st.Running) else None
        return row_text(row, state, self.baselines, now=self._feed.now(), left=left, live=live)
