"""One answer of a server as a record, at a rate that is known."""

from ddconsole.core.records import RequestOutcome, RequestRecord, TokenSource


def answer(rate: float, outcome: RequestOutcome = RequestOutcome.OK) -> RequestRecord:
    """32 tokens, the first after 0.1 s, the other 31 at this rate."""
    last = 0.1 + 31 / rate
    return RequestRecord(
        index=0, repetition=0, prompt="p", turn=0, stream=0, sent=0.0, first_text=0.1, last_text=last, end=last,
        chunks=32, chunk_gaps_us=(round(1e6 / rate),) * 31, prompt_tokens=9, output_tokens=32,
        token_source=TokenSource.USAGE, cached_tokens=0, reasoning_tokens=None, finish_reason="length",
        outcome=outcome, error=None, text_sha256="", finished=last, first_chunk_tokens=1,
        first_chunk_source=TokenSource.USAGE,
    )  # fmt: skip
