"""One cell shared out to several load processes, and what they say put together again."""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddconsole.core.records import CellProgress, RequestRecord
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.load.in_flight import InFlight
from ddconsole.load.task import LoadReport, LoadTask, Share

COMFORTABLE = 0.5
"""Share of a core up to which one load process is planned: from 0.85 on a cell is flagged."""
TYPICAL = 100 * 35e-6
"""Share of a core for a stream before anything was seen: a hundred chunks a second at 35 µs each."""
_CORES_EACH = 4
"""Cores of the machine for each load process: the servers are what they are there for."""
_SHORTEST_SEEN = 0.5
"""Seconds of a load below which its CPU time says little of the next one's."""


def processes_for(point: WorkloadPoint, share_of_a_stream: float | None, cores: int) -> int:
    """How many load processes a cell gets.

    Args:
        point: the cell's.
        share_of_a_stream: of a core, as an earlier load on the same server used it; None where there was none.
        cores: that the load processes may run on.
    """
    if point.kind == "single":
        return 1
    needed = point.concurrency * (TYPICAL if share_of_a_stream is None else share_of_a_stream) / COMFORTABLE
    return max(1, min(math.ceil(needed), point.concurrency, cores // _CORES_EACH))


def share_of_a_stream(report: LoadReport, point: WorkloadPoint) -> float | None:
    """The share of a core that a stream took, None where the load was too short to tell.

    A cell's own warm-up, with as many streams at once, is the best witness: each of them has one request then.
    """
    if report.wall_seconds < _SHORTEST_SEEN:
        return None
    return report.cpu_seconds / report.wall_seconds / (report.achieved_concurrency or point.concurrency)


def shares_of(task: LoadTask, processes: int, begin: float) -> list[LoadTask]:
    """The task as so many shares of it, which begin at the monotonic time `begin`."""
    return [replace(task, share=Share(index, processes, begin)) for index in range(processes)]


def in_order(records: Iterable[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The records of all processes, numbered in the order of sending."""
    ordered = sorted(records, key=lambda one: (one.sent, one.stream))
    return tuple(replace(one, index=index) for index, one in enumerate(ordered))


def together(reports: Sequence[LoadReport], records: Sequence[RequestRecord], planned: int) -> LoadReport:
    """What all processes say of themselves.

    Args:
        reports: one of each process.
        records: of all of them.
        planned: requests of the whole task.
    """
    flights = _flights(records)
    notes = [note for report in reports for note in report.notes]
    if len(records) < planned:
        notes.append(f"requests not sent: {planned - len(records)} of {planned}")
    lags = [report.mean_loop_lag for report in reports if report.mean_loop_lag is not None]
    return LoadReport(
        cpu_seconds=sum(report.cpu_seconds for report in reports),
        wall_seconds=max(report.wall_seconds for report in reports),
        worst_loop_lag=max(report.worst_loop_lag for report in reports),
        cancelled=any(report.cancelled for report in reports),
        warmup_requests=sum(report.warmup_requests for report in reports),
        warmup_failed=sum(report.warmup_failed for report in reports),
        notes=tuple(dict.fromkeys(notes)),
        achieved_concurrency=flights.while_sending,
        mean_loop_lag=max(lags, default=None),
        achieved_rate=flights.sending_rate,
        processes=len(reports),
        busiest=max((one.cpu_seconds / one.wall_seconds for one in reports if one.wall_seconds > 0), default=None),
    )


def progress_of_all(parts: Sequence[CellProgress], planned: int) -> CellProgress:
    """The latest words of all processes as one."""
    rates = [part.output_rate for part in parts if part.output_rate is not None]
    return CellProgress(
        cell=parts[0].cell,
        attempt=parts[0].attempt,
        requests_done=sum(part.requests_done for part in parts),
        requests_planned=planned,
        requests_failed=sum(part.requests_failed for part in parts),
        running=sum(part.running for part in parts),
        output_rate=sum(rates) if rates else None,
        at=max(part.at for part in parts),
    )


def _flights(records: Sequence[RequestRecord]) -> InFlight:
    flights = InFlight()
    sendings = sorted((one.sent, 1) for one in records)
    ends = sorted((one.end, 0) for one in records)
    # At one moment an end comes before a sending: a stream sends its next request when its last one has ended.
    for at, kind in heapq.merge(ends, sendings):
        if kind:
            flights.sent(at)
        else:
            flights.ended(at)
    return flights
