"""The rows of the sweep table, kept between two changes, so that one changed cell costs one row."""

from collections.abc import Mapping

from ddconsole.core import states as st
from ddconsole.core.fold import CellRow, RunState
from ddconsole.core.row_text import Baselines, LiveFigures, RowText, baselines, row_text
from ddconsole.link.client import LinkPhase
from ddconsole.link.feed import RunFeed
from screens.time_left import Forecast, forecast, run_seconds_left

_NO_FORECAST = Forecast({}, {}, None)


class RowBook:
    """Texts of all cells by id, in the order of the table."""

    def __init__(self, feed: RunFeed) -> None:
        self._feed = feed
        self._state: RunState | None = None
        self._cells: Mapping[str, CellRow] = {}
        self._left: tuple[float, float | None] | None = None
        self.rows: dict[str, RowText] = {}
        self.baselines: Baselines = {}
        self.forecast = _NO_FORECAST
        self.version = 0
        """Counts changes of `rows`."""

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
        rows = {name: self._text(state, name) if name in changed else self.rows[name] for name in state.cells}
        if len(rows) != len(self.rows) or any(self.rows.get(name) != rows[name] for name in changed):
            self.version += 1
        self.rows = rows
        self._state, self._cells = state, state.cells

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

    def cell_left(self, row: CellRow) -> float | None:
        """Seconds that one round of a cell is foretold to take."""
        return self.forecast.cell_seconds(self._feed.state, row)

    def run_left(self) -> float | None:
        """Seconds until the sweep is through, learned anew at most once a second."""
        now = self._feed.now()
        if self._left is None or abs(now - self._left[0]) > 1.0:
            self._left = (now, run_seconds_left(self._feed.state, self.forecast, now))
        return self._left[1]

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
        self.forecast = forecast(state)
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
        left = self.forecast.cell_seconds(state, row) if waits else None
        live = self.live() if isinstance(row.state, st.Running) else None
        return row_text(row, state, self.baselines, now=self._feed.now(), left=left, live=live)
