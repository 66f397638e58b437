"""Why an attempt does not count: what its requests and the load process tell."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddconsole.core.figures import Summary
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.states import Cause, Retry
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.runner.load_process import LoadResult


def failure_of(
    point: WorkloadPoint,
    figures: Summary,
    records: Sequence[RequestRecord],
    result: LoadResult,
    protocol: Mapping[str, Any],
) -> Cause | None:
    """Why the attempt does not count, or None when it does."""
    if result.report is None:
        return Cause("LOAD-DIED", f"the load process died: {result.died}", do="retry", retry=Retry.AS_IS)
    failed = [record for record in records if record.outcome in (RequestOutcome.FAILED, RequestOutcome.SHORT)]
    limit = float(protocol.get("failure_limit", 0.01))
    planned = _planned(point)
    if figures.succeeded == 0 or len(failed) > limit * planned:
        evidence = tuple(dict.fromkeys(f"{record.prompt}: {record.error or record.outcome}" for record in failed))[:8]
        first = failed[0].error if failed and failed[0].error else "no request was answered"
        return Cause(
            _request_cause(first),
            f"{len(failed)} of {planned} requests failed: {first}",
            evidence,
            do="read the server's log; retry once the cause is gone",
            retry=Retry.AS_IS if _request_cause(first) == "CONNECTION" else Retry.CHANGE,
        )
    if point.kind == "conversation" and len(records) < planned:
        return Cause("CONVERSATION-SHORT", f"only {len(records)} of {planned} turns were sent", do="read the turns")
    return None


def _planned(point: WorkloadPoint) -> int:
    """Requests of a whole attempt: every stream of a conversation plays the script."""
    streams = point.concurrency if point.kind == "conversation" else 1
    return point.requests * point.repetitions * streams


def _request_cause(text: str) -> str:
    if "no token for" in text:
        return "STALL"
    broken = ("reset", "refused", "disconnected", "payload", "cannot connect", "broken", "eof", "closed")
    if any(word in text.lower() for word in broken):
        return "CONNECTION"
    return "REQUEST"
