"""What the runner tells a load process, and what it hears back: JSON, one object a line, on stdin and stdout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.sweep import WorkloadPoint


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a set."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a script: what the user says, and the assistant's scripted answer for `replay`."""

    name: str
    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation. With `turns: replay` the scripted answers stand in the context, whatever the model said."""

    name: str
    system: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What of a cell one of several load processes does.

    The streams are dealt out by their numbers. In a closed loop the requests are not: each stream takes the next one
    that no process has taken, so that all streams are at work until the last request is sent.
    """

    index: int
    """From 0."""
    of: int
    """Processes."""
    begin: float
    """Seconds of the monotonic clock at which all of them begin."""

    def has(self, number: int) -> bool:
        """Whether this process plays the stream, or sends the request of an open loop, with this number."""
        return number % self.of == self.index


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Measure one cell: everything the load process needs."""

    cell: str
    attempt: int
    base_url: str
    """`http://127.0.0.1:PORT`."""
    model: str
    """The served name."""
    point: WorkloadPoint
    prompts: tuple[Prompt, ...]
    """Empty for a conversation."""
    script: Script | None
    body: Mapping[str, Any] = field(default_factory=dict)
    """Added to every request (`Engine.request_body`)."""
    warmup: int = 0
    """Requests before the measured ones; their records are not kept."""
    share: Share | None = None
    """None for all of it."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What the generator says of itself at the end of a cell."""

    cpu_seconds: float
    wall_seconds: float
    worst_loop_lag: float
    """Seconds that the event loop was late at most."""
    cancelled: bool
    warmup_requests: int
    warmup_failed: int
    notes: Sequence[str] = ()
    achieved_concurrency: float | None = None
    """Mean requests in flight from the first sending to the last: while there was work. None with too few requests."""
    mean_loop_lag: float | None = None
    """Seconds that the event loop was late on the mean, looked at every 20 ms; None for less than half a second."""
    achieved_rate: float | None = None
    """Requests sent a second, from the first sending to the last; None for one request."""
    processes: int = 1
    """Load processes that shared the cell."""
    busiest: float | None = None
    """The share of a core that the busiest of several used; None for one."""
