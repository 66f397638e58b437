"""How many tokens had come with the first text, and what not to know it does to a rate."""

import pytest
from timed_streams import ending, measured, text

from ddconsole.core.attempt_file import record_from_json
from ddconsole.core.figures import output_rate, rate_bias, summarise, tokens_at_first
from ddconsole.load.codec import record_to_json


def test_a_first_chunk_of_several_tokens_gives_the_same_rate_however_short_the_answer() -> None:
    """A step of 10 ms yields 4 tokens: 400 tok/s, for 8 tokens as for 400."""
    for tokens in (8, 40, 400):
        steps = range(4, tokens + 1, 4)
        reads = [(0.01 * number, text("four", told)) for number, told in enumerate(steps, start=1)]
        record = measured([*reads, (0.01 * len(steps), ending(tokens))], tokens)
        assert output_rate(record) == pytest.approx(400)
        assert rate_bias(record) == 0


def test_where_the_engine_does_not_tell_the_bias_is_said() -> None:
    """8 tokens in 2 chunks, 10 ms apart: told 7 / 10 ms, true 4 / 10 ms, which is 75 % too high."""
    record = measured([(0.01, text("four")), (0.02, text("four")), (0.02, ending(8))], 8)
    assert output_rate(record) == pytest.approx(700)
    assert rate_bias(record) == pytest.approx(0.75)
    assert summarise([record]).rate_bias == pytest.approx(0.75)


def test_an_older_record_is_read_and_has_the_figures_that_it_had() -> None:
    record = measured([(0.1, text()), (0.2, text()), (0.25, ending(2))], 2)
    data = record_to_json(record)
    for name in ("finished", "first_chunk_tokens", "first_chunk_source", "intended"):
        del data[name]
    old = record_from_json(data)
    assert (old.finished, old.first_chunk_tokens, old.intended, tokens_at_first(old)) == (None, None, None, 1)
    assert output_rate(old) == pytest.approx(1 / 0.1)
    assert rate_bias(old) is None
