from dataclasses import dataclass, field

import pytest

from ddconsole.rehearsal.batch import Batch, DecodeFigures, Sequence
from ddconsole.rehearsal.output import Wish, make_output
from ddconsole.rehearsal.rates import Method, Speed

SPEED = Speed(Method("ddtree", 16), 1, crosses_numa=False)


@dataclass
class HandClock:
    """A clock that the test moves."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def real_seconds(self, seconds: float) -> float:
        return seconds


@dataclass
class Heard:
    """What the batch told."""

    ended_requests: list[Sequence] = field(default_factory=list)
    figures: list[DecodeFigures] = field(default_factory=list)
    busy_changes: list[bool] = field(default_factory=list)

    def prefilled(self, sequence: Sequence, running: int, queued: int) -> None:
        assert (sequence.tokens, queued) == (1, 0) or running == 0

    def decoded(self, figures: DecodeFigures) -> None:
        self.figures.append(figures)

    def ended(self, sequence: Sequence) -> None:
        self.ended_requests.append(sequence)

    def busy(self, busy: bool) -> None:
        self.busy_changes.append(busy)


def request(clock: HandClock, name: str, tokens: int = 512) -> Sequence:
    output = make_output(Wish(name, tokens, ignore_eos=True), SPEED, 0)
    return Sequence(name, output, prompt_tokens=20, cached_tokens=0, arrived=clock.time)


def make(most: int = 8) -> tuple[HandClock, Heard, Batch]:
    clock, heard = HandClock(), Heard()
    return clock, heard, Batch(clock, SPEED, most, 10, heard)


def run(clock: HandClock, batch: Batch, late: float = 0.0) -> None:
    """Wake when the batch asks for it, or `late` seconds later."""
    while (due := batch.next_wake(clock.time)) is not None:
        clock.time = due + late
        batch.advance(clock.time)


def rate(one: Sequence) -> float:
    return (one.tokens - 1) / (one.ended - one.first_at)


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_one_request_keeps_the_rate_of_the_table_however_late_the_wake_ups_are(late: float) -> None:
    clock, heard, batch = make()
    one = request(clock, "one")
    batch.add(one)
    run(clock, batch, late)
    assert heard.ended_requests == [one]
    assert one.finish == "length"
    assert one.tokens == 512
    assert rate(one) == pytest.approx(SPEED.request_rate(), rel=0.013)
    assert one.first_at - one.arrived == pytest.approx(SPEED.prefill_seconds(20) + SPEED.first_token_overhead)
    assert heard.busy_changes == [True, False]


def test_the_wake_ups_for_the_first_and_the_last_token_are_exact_and_those_between_are_few() -> None:
    clock, _, batch = make()
    one = request(clock, "one")
    batch.add(one)
    wakes = []
    while (due := batch.next_wake(clock.time)) is not None:
        clock.time = due
        wakes.append(due)
        batch.advance(due)
    assert wakes[0] == one.first_at
    assert wakes[-1] == pytest.approx(one.ended, abs=1e-9)
    clock, _, batch = make()
    batch._held_back = 1.0
    one = request(clock, "one")
    batch.add(one)
    wakes = []
    while (due := batch.next_wake(clock.time)) is not None:
        clock.time = due
        wakes.append(due)
        batch.advance(due)
    assert len(wakes) <= 3 + (one.ended - one.first_at)
    assert wakes[-1] == pytest.approx(one.ended, abs=1e-9)


def test_requests_together_run_at_the_batch_s_rate() -> None:
    clock, heard, batch = make()
    requests = [request(clock, f"number {number}") for number in range(4)]
    for one in requests:
        batch.add(one)
    run(clock, batch)
    assert len(heard.ended_requests) == 4
    for one in requests:
        assert rate(one) == pytest.approx(SPEED.request_rate(4), rel=0.04)
    assert heard.figures[1].running == 4
    # The last ones to end have fewer neighbours and so are a little faster than the table says.
    assert heard.figures[1].rate == pytest.approx(4 * SPEED.request_rate(4), rel=0.2)


def test_what_does_not_fit_in_waits_for_a_place() -> None:
    clock, heard, batch = make(most=1)
    first, second = request(clock, "first", 64), request(clock, "second", 64)
    batch.add(first)
    batch.add(second)
    assert (len(batch.waiting), batch.size) == (1, 2)
    run(clock, batch)
    assert heard.ended_requests == [first, second]
    assert second.first_at > first.ended
    assert heard.busy_changes == [True, False]


def test_a_lost_client_s_request_decodes_on_until_it_is_noticed() -> None:
    clock, heard, batch = make()
    one = request(clock, "one", 2048)
    batch.add(one)
    clock.time += 1.0
    batch.advance(clock.time)
    before = one.tokens
    batch.abort(one, clock.time + 2.0)
    run(clock, batch)
    assert one.finish == "abort"
    assert one.ended == pytest.approx(1003.0)
    assert one.tokens - before == pytest.approx(2 * SPEED.request_rate(), rel=0.2)
    assert heard.ended_requests == [one]
    assert batch.size == 0


def test_a_frozen_scheduler_makes_nothing_and_goes_on_after() -> None:
    clock, heard, batch = make()
    one = request(clock, "one")
    batch.add(one)
    clock.time += 1.0
    batch.tick()
    batch.freeze()
    tokens = one.tokens
    clock.time += 50.0
    batch.tick()
    assert one.tokens == tokens
    batch.thaw()
    run(clock, batch)
    assert heard.ended_requests == [one]
    assert one.ended > 1050.0


def test_requests_that_wait_for_a_prefill_go_into_the_next_one_together() -> None:
    clock, _, batch = make()
    first, second, third = (request(clock, name) for name in ("first", "second", "third"))
    second.arrived = third.arrived = clock.time + 0.001
    for one in (first, second, third):
        batch.add(one)
    alone = SPEED.prefill_seconds(20)
    assert first.first_at - first.arrived == pytest.approx(alone + SPEED.first_token_overhead)
    assert second.first_at == third.first_at
    assert second.first_at - first.first_at == pytest.approx(SPEED.prefill_seconds(40))
    run(clock, batch)
    assert first.tokens == second.tokens == 512
