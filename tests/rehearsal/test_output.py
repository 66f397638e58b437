import pytest

from ddconsole.rehearsal.output import Wish, count_tokens, make_output
from ddconsole.rehearsal.rates import Method, Speed

AR = Speed(Method("ar"), 1, crosses_numa=False)
DFLASH = Speed(Method("dflash", 16), 1, crosses_numa=False)
TREE = Speed(Method("ddtree", 16), 1, crosses_numa=False)
LEAKING = Speed(Method("ddtree", 33), 1, crosses_numa=False)
WISH = Wish("write a parser", 1024, ignore_eos=True)


@pytest.mark.parametrize("speed", [AR, DFLASH, TREE, LEAKING])
@pytest.mark.parametrize("length", [1, 2, 17, 256, 2048])
def test_steps_add_up_to_the_length_at_the_table_s_rate(speed: Speed, length: int) -> None:
    output = make_output(Wish("write a parser", length, ignore_eos=True), speed, 0)
    assert len(output.tokens) == 1 + sum(output.accepted) == length
    assert all(1 <= one <= speed.method.positions for one in output.accepted)
    seconds = sum(output.pace) * speed.step_seconds(1)
    assert (length - 1) == pytest.approx(seconds * speed.request_rate(), rel=0.013)
    if length == 2048:
        assert length / len(output.accepted) == pytest.approx(speed.acceptance_length, rel=0.01)


def test_greedy_output_is_the_same_for_all_methods_but_the_leaking_ones() -> None:
    texts = {speed.method.label: make_output(WISH, speed, 0).tokens for speed in (AR, DFLASH, TREE)}
    assert len(set(texts.values())) == 1
    leaked = make_output(WISH, LEAKING, 0).tokens
    assert leaked != texts["ar"]
    assert leaked[:50] == texts["ar"][:50]
    assert make_output(WISH, Speed(LEAKING.method, 4, crosses_numa=False), 0).tokens == texts["ar"]


def test_the_same_rehearsal_gives_the_same_figures_and_repetitions_differ_in_time_only() -> None:
    first, again, second = (make_output(WISH, TREE, occurrence) for occurrence in (0, 0, 1))
    assert first == again
    assert second.tokens == first.tokens
    assert second.accepted == first.accepted
    assert second.pace != first.pace


def test_sampling_with_a_seed_repeats_and_without_one_does_not() -> None:
    seeded = Wish("write a parser", 64, ignore_eos=True, temperature=0.7, seed=7)
    free = Wish("write a parser", 64, ignore_eos=True, temperature=0.7)
    assert make_output(seeded, AR, 0).tokens == make_output(seeded, AR, 1).tokens
    assert make_output(free, AR, 0).tokens != make_output(free, AR, 1).tokens


def test_a_request_that_may_end_by_itself_does_so_below_its_limit() -> None:
    output = make_output(Wish("write a parser", 5000), AR, 0)
    assert output.ended_by_itself
    assert len(output.tokens) < 5000
    assert len(make_output(Wish("write a parser", 5000, min_tokens=3000), AR, 0).tokens) >= 3000


def test_tokens_are_counted_by_length() -> None:
    assert (count_tokens(""), count_tokens("a"), count_tokens("a" * 41)) == (0, 1, 11)
