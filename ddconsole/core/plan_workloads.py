"""The workloads of a plan: what is asked of the server. A new kind is one class and one line in `Workload`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ddconsole.core.plan_parts import ProtocolPart, SamplingPart
from ddconsole.core.plan_values import (
    Arguments,
    Concurrency,
    OneOrMany,
    PlanPart,
    PromptSet,
    Repetitions,
    RequestRate,
    Requests,
    Seed,
    TextSet,
    Tokens,
    random_length,
)
from ddconsole.core.sweep import Sampling, WorkloadPoint

WAVES = 4
"""Requests of a closed-loop repetition for each stream, where the plan names no number: the first and last wave run
with others that have just begun or ended, the middle ones do not."""
FEWEST_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class TextSize:
    """What expansion needs to know of a prompt set or script."""

    requests: int
    """Prompts of a set, or turns of a script."""
    context: int
    """Tokens of the longest prompt, or of a script with its answers up to the last turn: an upper estimate."""


USUAL_PROMPTS = TextSize(5, 1024)
RANDOM_PROMPTS = 8
"""Prompts of a set that is made up, in a `single` workload; other kinds have one for each request."""
USUAL_SCRIPT = TextSize(5, 8192)
"""Assumed where the texts are not at hand."""


class SingleWorkload(PlanPart):
    """Each prompt of a set alone, one request after the other."""

    kind: Literal["single"]
    prompts: PromptSet
    max_tokens: Annotated[tuple[Tokens, ...], OneOrMany]
    repetitions: Repetitions = 1
    server_args: Arguments = Field(default_factory=dict)

    def shapes(self, texts: TextSize) -> Iterator[tuple[int, int, int]]:
        """(concurrency, output tokens, requests of a repetition) of each point."""
        for tokens in self.max_tokens:
            yield 1, tokens, texts.requests

    @property
    def points_count(self) -> int:
        """How many points `shapes` gives."""
        return len(self.max_tokens)


class ClosedLoopWorkload(PlanPart):
    """A fixed number of requests in flight."""

    kind: Literal["closed-loop"]
    prompts: PromptSet
    max_tokens: Annotated[tuple[Tokens, ...], OneOrMany]
    concurrency: Annotated[tuple[Concurrency, ...], OneOrMany]
    repetitions: Repetitions = 1
    requests: Requests | None = None
    """Of one repetition; four for each stream, eight at least, without it."""
    server_args: Arguments = Field(default_factory=dict)

    def shapes(self, texts: TextSize) -> Iterator[tuple[int, int, int]]:  # noqa: ARG002  # as the other kinds
        """(concurrency, output tokens, requests of a repetition) of each point."""
        for concurrency in self.concurrency:
            for tokens in self.max_tokens:
                yield concurrency, tokens, self.requests or max(FEWEST_REQUESTS, WAVES * concurrency)

    @property
    def points_count(self) -> int:
        """How many points `shapes` gives."""
        return len(self.max_tokens) * len(self.concurrency)


class OpenLoopWorkload(PlanPart):
    """Requests that are sent at their own times, however many are in flight. Latencies count from those times."""

    kind: Literal["open-loop"]
    prompts: PromptSet
    max_tokens: Annotated[tuple[Tokens, ...], OneOrMany]
    rate: Annotated[tuple[RequestRate, ...], OneOrMany]
    """Requests a second."""
    arrivals: Literal["poisson", "constant"] = "poisson"
    seed: Seed = 7
    """Of the times of a Poisson process."""
    concurrency: Concurrency = 64
    """Requests that the server is sized for. Sending has no limit."""
    requests: Requests = 64
    """Of one repetition."""
    repetitions: Repetitions = 1
    server_args: Arguments = Field(default_factory=dict)

    def shapes(self, texts: TextSize) -> Iterator[tuple[int, int, int]]:  # noqa: ARG002  # as the other kinds
        """(concurrency, output tokens, requests of a repetition) of each point at one rate."""
        for tokens in self.max_tokens:
            yield self.concurrency, tokens, self.requests

    @property
    def points_count(self) -> int:
        """How many points there are at all rates."""
        return len(self.max_tokens) * len(self.rate)


class ConversationWorkload(PlanPart):
    """A scripted conversation, turn after turn, in each of `concurrency` streams."""

    kind: Literal["conversation"]
    script: TextSet
    max_tokens: Annotated[tuple[Tokens, ...], OneOrMany]
    concurrency: Annotated[tuple[Concurrency, ...], OneOrMany] = (1,)
    repetitions: Repetitions = 1
    turns: Literal["replay", "live"] = "replay"
    """`replay`: scripted answers stand in the context, the same for all methods. `live`: the model's own."""
    server_args: Arguments = Field(default_factory=dict)

    def shapes(self, texts: TextSize) -> Iterator[tuple[int, int, int]]:
        """(concurrency, output tokens, turns) of each point."""
        for concurrency in self.concurrency:
            for tokens in self.max_tokens:
                yield concurrency, tokens, texts.requests

    @property
    def points_count(self) -> int:
        """How many points `shapes` gives."""
        return len(self.max_tokens) * len(self.concurrency)


Workload = Annotated[
    SingleWorkload | ClosedLoopWorkload | OpenLoopWorkload | ConversationWorkload, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One point of a workload with the longest context, in tokens, of its requests."""

    point: WorkloadPoint
    context: int


def text_name(workload: Workload) -> str:
    """The prompt set or script of a workload."""
    return workload.script if isinstance(workload, ConversationWorkload) else workload.prompts


def planned_points(
    name: str,
    workload: Workload,
    sampling: SamplingPart,
    protocol: ProtocolPart,
    texts: Mapping[str, TextSize] | None = None,
) -> Iterator[PlannedPoint]:
    """The points of a workload, in the order of the plan's lists.

    Args:
        name: the workload's name in the plan.
        workload: what the plan says of it.
        sampling: of the plan.
        protocol: of the plan.
        texts: sizes of the prompt sets and scripts, by name; usual ones where a name is not in it.
    """
    conversation = isinstance(workload, ConversationWorkload)
    length = random_length(text_name(workload))
    size = (texts or {}).get(text_name(workload), USUAL_SCRIPT if conversation else USUAL_PROMPTS)
    if length is not None:
        size = TextSize(RANDOM_PROMPTS, length + TOKENS_PER_MESSAGE)
    live = isinstance(workload, ConversationWorkload) and workload.turns == "live"
    open_loop = workload if isinstance(workload, OpenLoopWorkload) else None
    for rate in open_loop.rate if open_loop else (None,):
        for concurrency, tokens, requests in workload.shapes(size):
            point = WorkloadPoint(
                workload=name,
                kind=workload.kind,
                prompts=text_name(workload),
                concurrency=concurrency,
                max_tokens=tokens,
                repetitions=workload.repetitions,
                requests=requests,
                sampling=Sampling(**sampling.model_dump()),
                turns=workload.turns if isinstance(workload, ConversationWorkload) else "replay",
                request_timeout=protocol.request_timeout,
                stall_timeout=protocol.stall_timeout,
                rate=rate,
                arrivals=open_loop.arrivals if open_loop else None,
                arrival_seed=open_loop.seed if open_loop else None,
            )
            yield PlannedPoint(point, size.context + tokens * (requests if live else 1))


CHARACTERS_PER_TOKEN = 3
"""Of prose and code, at least: tokenizers of today's models need 3.1 to 4.6. Digits are a token each, others more."""
TOKENS_PER_MESSAGE = 16
"""What a chat template puts around one message."""


def tokens_of(text: str) -> int:
    """An upper estimate of a text's tokens, as one chat message."""
    digits = sum(one.isdigit() for one in text)
    foreign = sum(not one.isascii() for one in text)
    plain = len(text) - digits - foreign
    return -(-plain // CHARACTERS_PER_TOKEN) + digits + 2 * foreign + TOKENS_PER_MESSAGE
