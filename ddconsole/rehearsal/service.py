"""The simulated server's inside: requests, counters, prefix cache and log lines, without HTTP."""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ddconsole.core.clock import Clock
from ddconsole.rehearsal.arguments import ServerArguments
from ddconsole.rehearsal.batch import Batch, DecodeFigures, Sequence
from ddconsole.rehearsal.faults import FaultName, FaultRule
from ddconsole.rehearsal.log import Log
from ddconsole.rehearsal.output import Wish, count_tokens, make_output
from ddconsole.rehearsal.timing import simulated

_CACHED_PROMPTS = 64
TRANSPORT_SECONDS = 0.0012
"""Real seconds that client, kernel and HTTP cost a request here: a fast clock would show them in the time to the first
token, and still does where they are more than the whole of it."""
LOST_CLIENT_SECONDS = 2.0
"""A client that left is noticed only after this long; its request decodes on."""

_STREAM_FAULTS = frozenset(
    {
        FaultName.CRASH_STREAMING,
        FaultName.HANG_STREAMING,
        FaultName.DETOKENIZER_DEAD,
        FaultName.ERROR_IN_STREAM,
        FaultName.NO_TOKENS,
    }
)


class PrefixCache:
    """Texts that the server has seen: what a new prompt has in common with one of them is cached."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._texts: list[str] = []

    def cached_tokens(self, prompt: str) -> int:
        """Tokens of the prompt that need no prefill; the last one always does."""
        longest = max((_common(prompt, text) for text in self._texts), default=0)
        return min(longest // 4, count_tokens(prompt) - 1) if prompt else 0

    def keep(self, text: str) -> None:
        """Remember a prompt with its output."""
        if self._enabled:
            self._texts = [*self._texts[-_CACHED_PROMPTS + 1 :], text]

    def flush(self) -> None:
        """Forget everything."""
        self._texts.clear()


@dataclass
class Counts:
    """The server's own counters since its start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    verify_steps: int = 0
    requests: int = 0
    aborted: int = 0
    decoded_tokens: int = 0
    """Up to the last decode line."""
    prefilled_tokens: int = 0
    decode_passes: int = 0
    prefill_passes: int = 0
    average_tokens: int = 0
    """Since the last flush, with `average_steps`: the average acceptance length that `/server_info` tells."""
    average_steps: int = 0


@dataclass
class Service:
    """What the HTTP side asks of the simulated engine."""

    arguments: ServerArguments
    clock: Clock
    fault: FaultRule | None
    set_busy: Callable[[bool], None]
    """Tells the scheduler processes, which show it as GPU utilisation."""
    kv_tokens: int = 1
    counts: Counts = field(default_factory=Counts)
    status: str = "Starting"
    """`Starting`, `Up`, `ServerStatus.UnHealthy` in SGLang's words."""
    health_failed: bool = False
    last_acceptance: float = 0.0

    def __post_init__(self) -> None:
        self.log = Log(self.clock, " TP0" if self.arguments.tensor_parallel > 1 else "")
        self.cache = PrefixCache(enabled=not self.arguments.options.disable_radix_cache)
        self.sequences: dict[str, Sequence] = {}
        self._prompts: dict[str, str] = {}
        self._asked: Counter[str] = Counter()
        self._requests = 0
        self._prefill_at = self.clock.monotonic()

    def attach(self, batch: Batch) -> None:
        """Give it the batch that it feeds."""
        self.batch = batch

    def submit(self, wish: Wish, rid: str | None) -> Sequence:
        """Take a request into the batch."""
        occurrence = self._asked[wish.prompt]
        self._asked[wish.prompt] += 1
        sequence = Sequence(
            rid=rid or uuid.uuid4().hex,
            output=make_output(wish, self.arguments.speed, occurrence),
            prompt_tokens=count_tokens(wish.prompt),
            cached_tokens=self.cache.cached_tokens(wish.prompt),
            arrived=self.clock.monotonic() - simulated(self.clock, TRANSPORT_SECONDS),
        )
        self.sequences[sequence.rid] = sequence
        self._prompts[sequence.rid] = wish.prompt
        self.batch.add(sequence)
        return sequence

    def next_fault(self) -> FaultRule | None:
        """Count a request and say what goes wrong with it."""
        self._requests += 1
        rule = self.fault
        if rule is None or rule.fault not in _STREAM_FAULTS:
            return None
        return rule if rule.at_request <= self._requests < rule.at_request + rule.requests else None

    def lose_client(self, sequence: Sequence) -> None:
        """The client is gone."""
        if sequence.finish is None:
            self.batch.abort(sequence, self.clock.monotonic() + LOST_CLIENT_SECONDS)

    def abort(self, rid: str | None) -> None:
        """End one request, or all."""
        for name, sequence in list(self.sequences.items()):
            if rid is None or name.startswith(rid):
                self.batch.abort(sequence)

    def flush_cache(self) -> bool:
        """Empty the prefix cache; only possible when nothing runs."""
        if self.batch.size:
            return False
        self.cache.flush()
        self.counts.average_tokens = self.counts.average_steps = 0
        return True

    def probe_line(self) -> None:
        """The trace of a `/health` call on an idle server: it generates one token."""
        self._prefill_line(1, 0, 0, 0)

    # --- what the batch tells ----------------------------------------------------------------------------------

    def prefilled(self, sequence: Sequence, running: int, queued: int) -> None:
        """A request's first token is out."""
        new = sequence.prompt_tokens - sequence.cached_tokens
        self.counts.prefilled_tokens += new
        self._prefill_line(new, sequence.cached_tokens, running, queued)

    def decoded(self, figures: DecodeFigures) -> None:
        """Another interval of steps is done."""
        method = self.arguments.method
        self.last_acceptance = figures.acceptance if method.speculative else 0.0
        self.counts.decoded_tokens += figures.decoded
        rate = (figures.acceptance - 1) / (method.positions - 1) if method.positions > 1 else 0.0
        accepted = f"accept len: {figures.acceptance:.2f}, accept rate: {rate:.2f}, " if method.speculative else ""
        graph = not self.arguments.options.disable_cuda_graph
        self.log.line(
            f"Decode batch, #running-req: {figures.running}, #full token: {figures.tokens}, "
            f"full token usage: {figures.tokens / max(self.kv_tokens, 1):.2f}, mamba num: {figures.running}, "
            f"mamba usage: {figures.running / self.arguments.max_running:.2f}, {accepted}cuda graph: {graph}, "
            f"gen throughput (token/s): {figures.rate:.2f}, #queue-req: {figures.queued}"
        )

    def ended(self, sequence: Sequence) -> None:
        """A request is over: SGLang counts its tokens now and not before."""
        self.sequences.pop(sequence.rid, None)
        prompt = self._prompts.pop(sequence.rid, "")
        counts = self.counts
        counts.decode_passes += sequence.steps
        counts.prefill_passes += 1
        if sequence.finish == "abort":
            counts.aborted += 1
            return
        counts.requests += 1
        counts.prompt_tokens += sequence.prompt_tokens
        counts.cached_tokens += sequence.cached_tokens
        counts.output_tokens += sequence.tokens
        if self.arguments.method.speculative:
            counts.verify_steps += sequence.steps
            counts.average_steps += sequence.steps
            counts.average_tokens += sequence.tokens
        self.cache.keep(prompt + sequence.output.text(0, sequence.tokens))

    def busy(self, busy: bool) -> None:
        """The GPUs begin or stop to compute."""
        self.set_busy(busy)

    def _prefill_line(self, new: int, cached: int, running: int, queued: int) -> None:
        now = self.clock.monotonic()
        rate = new / max(now - self._prefill_at, 1e-3)
        self._prefill_at = now
        used = self.batch.used_tokens / max(self.kv_tokens, 1)
        graph = new > 1 and not self.arguments.options.disable_prefill_cuda_graph
        self.log.line(
            f"Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {cached}, full token usage: {used:.2f}, "
            f"mamba usage: {running / self.arguments.max_running:.2f}, #running-req: {running}, #queue-req: {queued}, "
            f"#pending-token: 0, cuda graph: {graph}, input throughput (token/s): {rate:.2f}"
        )


def _common(one: str, other: str) -> int:
    """Length of the common beginning, by halving: prompts are long and compared often."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
