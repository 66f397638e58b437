"""How long cells and the sweep will still take, from what this run has measured so far."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.fold import CellRow, RunState

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds per cell where an equal point, or the same rate, has been measured; and per server start."""

    by_point: Mapping[Key, float]
    """Deployment and point."""
    by_rate: Mapping[Key, float]
    """Seconds per token and stream by deployment, by method, and for all (the empty key)."""
    start: float | None

    def cell_seconds(self, state: RunState, row: CellRow) -> float | None:
        """Seconds of one round of a cell; None where nothing like it has been measured."""
        known = self.by_point.get((row.cell.deployment, row.cell.point))
        if known is not None:
            return known
        method = state.deployments[row.cell.deployment].method
        for key in ((row.cell.deployment,), ("method", method), ()):
            rate = self.by_rate.get(key)
            if rate is not None:
                return rate * _tokens_per_stream(row)
        return None


def forecast(state: RunState) -> Forecast:
    """Learn from the attempts that are done and the servers that became ready."""
    by_point: dict[Key, list[float]] = {}
    by_rate: dict[Key, list[float]] = {}
    for row in state.cells.values():
        for attempt in row.done_attempts():
            if attempt.ended is None:
                continue
            seconds = attempt.ended - attempt.started
            deployment = row.cell.deployment
            by_point.setdefault((deployment, row.cell.point), []).append(seconds)
            rate = seconds / _tokens_per_stream(row)
            for key in ((deployment,), ("method", state.deployments[deployment].method), ()):
                by_rate.setdefault(key, []).append(rate)
    starts = [one.start_seconds for one in state.launches.values() if one.start_seconds]
    return Forecast(_medians(by_point), _medians(by_rate), statistics.median(starts) if starts else None)


def run_seconds_left(state: RunState, known: Forecast, now: float) -> float | None:
    """Seconds until no cell is pending: the cells, and one start for each deployment that has none; None if unknown."""
    total = 0.0
    waiting: set[tuple[str, int]] = set()
    for row in state.cells.values():
        if not isinstance(row.state, st.Pending | st.Running):
            continue
        seconds = known.cell_seconds(state, row)
        if seconds is None:
            return None
        done = len(row.done_attempts())
        total += seconds * max(1, row.cell.rounds - done)
        if isinstance(row.state, st.Running):
            total -= min(seconds, max(0.0, now - row.state.since))
        waiting |= {(row.cell.deployment, number) for number in range(done, row.cell.rounds)}
    live = state.live_launch()
    starts = len(waiting) - (1 if live is not None and waiting else 0)
    return total + max(0, starts) * (known.start or 0.0)


def _tokens_per_stream(row: CellRow) -> float:
    """Output tokens that one of the concurrent clients waits for."""
    point = row.cell.point
    return max(1.0, point.requests * point.repetitions * point.max_tokens / max(1, point.concurrency))


def _medians(values: Mapping[Key, list[float]]) -> dict[Key, float]:
    return {key: statistics.median(many) for key, many in values.items()}
