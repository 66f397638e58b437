"""GPU memory of a simulated server: weights, draft, recurrent states, KV cache, graphs (facts: engines.md 1.6)."""

from dataclasses import dataclass

from ddconsole.rehearsal.arguments import ServerArguments

GIB = 1024**3
CAPACITY = 94.97
"""GiB of a card that processes may use."""
WEIGHTS = 51.8
DRAFT = 3.2
CONTEXT = 0.60
"""CUDA context and communication buffers of a process."""
STATE = 0.1434
"""Recurrent state of one request in float32, and of each draft token's copy."""
KV_BYTES_PER_TOKEN = 64 * 1024
GRAPHS = 1.4
KV_HEADS = 4


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """GiB of one rank."""

    available: float
    """Free before anything is loaded."""
    weights: float
    draft: float
    states: float
    """Recurrent states that stay with requests."""
    copies: float
    """One more state per draft token and request."""
    kv: float
    kv_tokens: int
    graphs: float
    viable_fraction: float
    """Smallest `--mem-fraction-static` that leaves anything."""

    @property
    def loads(self) -> bool:
        """Whether the weights can be allocated at all."""
        return self.weights + self.draft + CONTEXT < self.available

    @property
    def fits(self) -> bool:
        """Whether the weights leave something for caches."""
        return self.kv + self.states + self.copies > 0

    @property
    def states_fit(self) -> bool:
        """Whether the recurrent states leave something for the KV cache."""
        return self.kv > 0

    @property
    def total(self) -> float:
        """Held when everything is up."""
        return CONTEXT + self.weights + self.draft + self.states + self.copies + max(self.kv, 0.0) + self.graphs


def plan_memory(arguments: ServerArguments, available: float) -> MemoryPlan:
    """Split what is free on one GPU as SGLang does.

    Args:
        arguments: the server's.
        available: GiB that nobody else holds.
    """
    ranks = arguments.tensor_parallel
    method = arguments.method
    fraction = float(arguments.options.mem_fraction_static or 0.85)
    half = str(arguments.options.mamba_ssm_dtype or "float32") != "float32"
    state = STATE * (0.5 if half else 1.0) / ranks
    weights = WEIGHTS / ranks
    draft = DRAFT / ranks if method.speculative else 0.0
    left = available - CONTEXT - weights - draft
    room = left - available * (1 - fraction)
    copies = state * arguments.max_running * method.positions if method.speculative else 0.0
    states = state * arguments.max_running if method.speculative else min(state * arguments.max_running, 0.45 * room)
    kv = room - states - copies
    per_token = KV_BYTES_PER_TOKEN / min(ranks, KV_HEADS)
    tokens = max(int(kv * GIB / per_token), 0)
    most = arguments.options.max_total_tokens
    if most and most < tokens:
        tokens = int(most)
        kv = tokens * per_token / GIB
    return MemoryPlan(
        available, weights, draft, states, copies, kv, tokens, GRAPHS, viable_fraction=1 - left / available
    )
