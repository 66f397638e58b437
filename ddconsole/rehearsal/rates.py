"""How fast the simulated CT200 is: one model of a decoding step, fitted to what the operator measured.

Output rate of one request = acceptance length / seconds of one step. A step is

    weights / (bandwidth x TP)           every step reads all weights once, whatever the batch
  + launch                               of the graph
  + all-reduces x (latency + bytes)      two per layer; latency grows where the ranks sit on two NUMA domains
  + draft / TP + host work               of speculative methods; the host work is the residual of the fit
  + positions x position cost / TP       every verified position of every request: state writes, attention, logits
  + (running - 1) x request cost         scheduling of a larger batch

The fit (TP 1, one request, Qwen3.6-27B in BF16 on an RTX PRO 6000): baseline 28.4 tok/s, DFlash 100.1 tok/s at an
acceptance length of 4.81, DDTree with a budget of 15 124.2 tok/s at 5.60. Budgets above 16 leak recurrent state at
TP 1, which costs acceptance there. What was not measured (TP 4 and 8, batches) is the model's guess.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

WEIGHT_BYTES = 55.6e9
"""Qwen3.6-27B in BF16."""
BANDWIDTH = 1.6e12
"""Bytes a second of one card."""
LAYERS = 64
HIDDEN_BYTES = 5120 * 2
PARAMETERS = 27e9
PREFILL_FLOPS = 250e12
"""Dense BF16 operations a second that a prefill reaches on one card."""

LAUNCH_SECONDS = 0.160e-3
POSITION_SECONDS = 0.300e-3
REQUEST_SECONDS = 0.500e-3
DRAFT_SECONDS = 2.900e-3
HOST_SECONDS = {"dflash": 5.442e-3, "ddtree": 2.479e-3}
"""Residuals of the fit."""
OTHER_HOST_SECONDS = 4.0e-3
ALL_REDUCE_SECONDS = {False: 28e-6, True: 85e-6}
"""Latency of one all-reduce, by whether the ranks sit on two NUMA domains."""
ALL_REDUCE_BANDWIDTH = {False: 25e9, True: 15e9}

CHAIN_AGREEMENT = 0.7977
"""Probability that one more token of a DFlash chain is right: gives 4.81 at a block of 16."""
TREE_ACCEPTANCE = ((4, 3.90), (8, 4.90), (12, 5.33), (15, 5.60), (16, 5.63), (32, 5.95), (64, 6.20), (1024, 7.00))
"""Acceptance length by node budget."""
LEAK = ((16, 1.0), (32, 0.655), (64, 0.53), (1024, 0.40))
"""What is left of the acceptance length at TP 1, by node budget: recurrent state leaks above 16."""
OTHER_ACCEPTANCE = 2.40
FIRST_TOKEN_SECONDS = 26e-3
"""Of a request beside its prefill: HTTP, tokenising, scheduling."""
SPECULATIVE_FIRST_TOKEN_SECONDS = {"dflash": 3e-3, "ddtree": 5e-3}


@dataclass(frozen=True, slots=True)
class Method:
    """One way of decoding, as the server was told."""

    kind: str
    """`ar`, `dflash`, `ddtree`, or another algorithm's name."""
    positions: int = 1
    """Positions that one step verifies for one request, the bonus token's included."""

    @property
    def budget(self) -> int:
        """Nodes of the draft tree."""
        return self.positions - 1

    @property
    def label(self) -> str:
        """`ar`, `dflash`, `ddtree-b15`."""
        return f"ddtree-b{self.budget}" if self.kind == "ddtree" else self.kind

    @property
    def speculative(self) -> bool:
        """Whether it drafts."""
        return self.kind != "ar"

    def leaks(self, tensor_parallel: int) -> bool:
        """Whether recurrent state leaks between branches, which changes the output."""
        return self.kind == "ddtree" and self.budget > LEAK[0][0] and tensor_parallel == 1


@dataclass(frozen=True, slots=True)
class Speed:
    """The table for one server: a method on so many ranks."""

    method: Method
    tensor_parallel: int
    crosses_numa: bool

    @property
    def acceptance_length(self) -> float:
        """Tokens of one step and request, bonus token included."""
        method = self.method
        if not method.speculative:
            return 1.0
        if method.kind == "dflash":
            return (1 - CHAIN_AGREEMENT**method.positions) / (1 - CHAIN_AGREEMENT)
        if method.kind != "ddtree":
            return min(OTHER_ACCEPTANCE, float(method.positions))
        kept = _interpolate(LEAK, method.budget) if method.leaks(self.tensor_parallel) else 1.0
        return min(_interpolate(TREE_ACCEPTANCE, method.budget) * kept, float(method.positions))

    def step_seconds(self, running: int) -> float:
        """One step of a batch of `running` requests."""
        ranks = self.tensor_parallel
        positions = running * self.method.positions
        seconds = WEIGHT_BYTES / BANDWIDTH / ranks + LAUNCH_SECONDS + POSITION_SECONDS * positions / ranks
        if ranks > 1:
            moved = HIDDEN_BYTES * positions * 2 * (ranks - 1) / ranks
            one = ALL_REDUCE_SECONDS[self.crosses_numa] + moved / ALL_REDUCE_BANDWIDTH[self.crosses_numa]
            seconds += 2 * LAYERS * one
        if self.method.speculative:
            seconds += DRAFT_SECONDS / ranks + HOST_SECONDS.get(self.method.kind, OTHER_HOST_SECONDS)
        return seconds + REQUEST_SECONDS * (running - 1)

    def request_rate(self, running: int = 1) -> float:
        """Output tokens a second of one request in a batch of `running`."""
        return self.acceptance_length / self.step_seconds(running)

    def prefill_seconds(self, tokens: int) -> float:
        """Prefill of so many tokens that are not cached: one read of the weights at least."""
        read = WEIGHT_BYTES / BANDWIDTH
        compute = 2 * PARAMETERS * tokens / PREFILL_FLOPS
        return max(read, compute) / self.tensor_parallel

    @property
    def first_token_overhead(self) -> float:
        """Seconds from a request to its first token, beside the prefill."""
        return FIRST_TOKEN_SECONDS + SPECULATIVE_FIRST_TOKEN_SECONDS.get(self.method.kind, 0.0)


def _interpolate(table: tuple[tuple[int, float], ...], budget: int) -> float:
    """Linear in the logarithm of the budget, constant outside the table."""
    budgets = [row[0] for row in table]
    place = bisect_left(budgets, budget)
    if place == 0:
        return table[0][1]
    if place == len(table):
        return table[-1][1]
    (left, low), (right, high) = table[place - 1], table[place]
    share = (math.log2(budget) - math.log2(left)) / (math.log2(right) - math.log2(left))
    return low + share * (high - low)
