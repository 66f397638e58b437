"""A sweep conducted on paper: the schedule decides as in an agent, and servers and cells take the time they are given.

Everything but time is left out: no process, no file. A sweep of 200 cells takes a second.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.drift import drift_checks
from ddconsole.core.duration import estimates_for, remaining, stream_tokens
from ddconsole.core.fold import apply, fold
from ddconsole.core.pruning import prunings
from ddconsole.core.repeating import repetitions
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import cells_of_launch, next_launch
from ddconsole.core.sweep import Cell, Deployment


@dataclass(frozen=True)
class Times:
    """What a server and its cells take. Seconds, and output tokens a second of one stream."""

    start: Callable[[Deployment], float]
    rate: Callable[[Deployment, Cell], float]
    around: float = 12.0
    """Of a launch beyond its start and cells, until the next one is planned."""
    launch_noise: float = 0.01
    cell_noise: float = 0.02
    before_cell: float = 1.0


def conducted(events: list[ev.Event], times: Times, seed: int = 1) -> list[ev.Entry]:
    """The journal of the whole sweep, from its first events on."""
    dice = random.Random(seed)
    entries = [ev.Entry(1, n, 0.0, event) for n, event in enumerate(events, 1)]
    state, now = fold(entries), 0.0

    def tell(event: ev.Event) -> None:
        nonlocal state
        entry = ev.Entry(1, state.seq + 1, now, event)
        entries.append(entry)
        state = apply(state, entry)

    while (due := next_launch(state)) is not None:
        deployment = state.deployments[due.deployment]
        tell(ev.LaunchPlanned(due.number, due.deployment, due.round))
        tell(ev.LaunchStarting(due.number, "load weights"))
        seconds = times.start(deployment) * dice.lognormvariate(0, 0.05)
        now += seconds
        tell(ev.LaunchReady(due.number, start_seconds=seconds))
        pace = dice.lognormvariate(0, times.launch_noise)
        while wanted := cells_of_launch(state, state.launches[due.number]):
            first = wanted[0]
            tell(ev.AttemptStarted(first.cell.id, first.attempt, due.number, first.round, first.cell.revision))
            rate = times.rate(deployment, first.cell) * pace * dice.lognormvariate(0, times.cell_noise)
            now += times.before_cell + stream_tokens(first.cell.point) / rate
            figures = {"output_rate": rate}
            tell(ev.AttemptDone(first.cell.id, first.attempt, due.number, "", "f", figures))
            for decide in (repetitions, prunings, drift_checks):
                for event in decide(state):
                    tell(event)
        tell(ev.LaunchStopping(due.number, "asked", 0.0))
        now += times.around * 0.6
        tell(ev.LaunchGone(due.number))
        now += times.around * 0.4
    tell(ev.RunEnded("complete"))
    return entries


@dataclass(frozen=True)
class Foretold:
    """What was foretold when a cell had ended."""

    cells: int
    """That had been measured by then; a repetition is one more."""
    at: float
    foretold: float
    """Seconds that were said to be left."""
    left: float
    """Seconds that were left."""
    whole: float
    """Seconds of the whole run."""

    @property
    def error(self) -> float:
        """Share of what was left; above zero where too much was foretold."""
        return self.foretold / self.left - 1 if self.left > 0 else 0.0


def foretold(entries: list[ev.Entry]) -> Iterator[Foretold]:
    """What was foretold after every measured cell of a finished run, beside what came."""
    began = next(entry.at for entry in entries if isinstance(entry.event, ev.LaunchPlanned))
    ended = max(entry.at for entry in entries if isinstance(entry.event, ev.LaunchGone | ev.RunEnded))
    state, cells = RunState(), 0
    for entry in entries:
        state = apply(state, entry)
        if isinstance(entry.event, ev.AttemptDone):
            cells += 1
        decided = isinstance(entry.event, ev.AttemptStarted | ev.LaunchStopping) and cells > 0
        if decided and state.phase is st.RunPhase.RUNNING:
            told = remaining(state, estimates_for(state), entry.at).total
            if told is not None:
                yield Foretold(cells, entry.at, told, ended - entry.at, ended - began)
