"""One cell of the sweep in words: what the table, the details and the command line say of it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ddconsole.core import states as st
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import Attempt, CellRow, RunState
from ddconsole.core.visible_text import visible_line

GLYPHS: dict[st.CellPhase, str] = {
    st.CellPhase.PENDING: "◌",
    st.CellPhase.RUNNING: "▶",
    st.CellPhase.DONE: "✓",
    st.CellPhase.FAILED: "✗",
    st.CellPhase.STOPPED: "■",
    st.CellPhase.INTERRUPTED: "↯",
    st.CellPhase.SKIPPED: "–",
    st.CellPhase.PRUNED: "✂",
    st.CellPhase.BLOCKED: "⊘",
    st.CellPhase.UNFIT: "◇",
}
"""State is glyph, word and colour, never colour alone."""

PROBLEMS = frozenset({st.CellPhase.FAILED, st.CellPhase.BLOCKED, st.CellPhase.UNFIT, st.CellPhase.INTERRUPTED})
"""Phases that want a decision of the operator."""

REQUESTS_FOR_A_MEDIAN = 11
"""Requests that the median of a time needs at least to stand in a report: `report.statistics.PERCENTILE_FLOORS`."""

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of a cell over its attempts that count: one per round. Rates in tokens a second, times in seconds."""

    output_rate: float | None
    spread: float | None
    """Within one launch where there is one attempt, else half the range over the launches."""
    server_rate: float | None
    ttft: float | None
    tpot: float | None
    chunk_gap: float | None
    acceptance: float | None
    engine_acceptance: float | None
    """What the engine prints under that name, where it means something else."""
    acceptance_source: str
    estimated: bool
    requests: int
    succeeded: int
    attempts: int
    end_to_end: float | None = None
    tokens_per_chunk: float | None = None
    goodput: float | None = None
    good_share: float | None = None
    steady_rate: float | None = None
    steady_seconds: float | None = None
    rate_bias: float | None = None


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """What is known of the running cell beside the journal."""

    progress: CellProgress | None = None
    rates: tuple[float, ...] = ()
    acceptance: float | None = None
    current: bool = True
    """The link is up: these are values of now."""


@dataclass(frozen=True, slots=True)
class RowText:
    """A row of the sweep table; an empty text is a figure that does not exist."""

    id: str
    phase: st.CellPhase
    glyph: str
    word: str
    method: str
    tensor_parallel: str
    workload: str
    concurrency: str
    length: str
    rate: str = ""
    spread: str = ""
    speed_up: str = ""
    acceptance: str = ""
    ttft: str = ""
    count: str = ""
    time: str = ""
    cause: str = ""
    """Across the figures, where there are none: why, and what to do."""
    live: bool = False
    """Its values are of now and will move."""
    stale: bool = False
    """Its values were of now when the link was last up."""


PointKey: TypeAlias = tuple[Any, ...]
Baselines: TypeAlias = Mapping[PointKey, float]


def point_key(row: CellRow, state: RunState) -> PointKey:
    """What must be equal for two methods to be compared: engine, tensor-parallel size and what is asked."""
    point = row.cell.point
    size = state.deployments[row.cell.deployment].tensor_parallel
    group = max((attempt.group for attempt in row.compared_attempts()), default=0)
    arrivals = (point.rate, point.arrivals, point.arrival_seed)
    asked = (point.workload, point.kind, point.prompts, point.concurrency, point.max_tokens, point.sampling)
    return (group, size, *asked, *arrivals)


def baselines(state: RunState) -> dict[PointKey, float]:
    """The baseline's rate at each point where it has been measured."""
    name = state.created.baseline if state.created else ""
    found: dict[PointKey, float] = {}
    for row in state.cells.values():
        if state.deployments[row.cell.deployment].method != name:
            continue
        figures = cell_figures(row)
        if figures is not None and figures.output_rate:
            found.setdefault(point_key(row, state), figures.output_rate)
    return found


def baseline_is_of_another_engine(row: CellRow, state: RunState, known: Baselines) -> bool:
    """Whether there is a baseline to compare with, but of another group of launches."""
    key = point_key(row, state)
    return key not in known and any(one[1:] == key[1:] for one in known)


def cell_figures(row: CellRow) -> CellFigures | None:
    """The median over the attempts that count; None where there is none."""
    attempts = [attempt for attempt in row.compared_attempts() if attempt.figures]
    if not attempts:
        return None
    rates = _numbers(attempts, "output_rate")
    spread = _number(attempts[0].figures.get("output_rate_spread"))
    if len(attempts) > 1:
        spread = (max(rates) - min(rates)) / 2 if len(rates) > 1 else None
    accepted = [acceptance_length(attempt.figures) for attempt in attempts]
    engine = [_number(_part(attempt.figures, "acceptance").get("engine_length")) for attempt in attempts]
    return CellFigures(
        output_rate=_median(rates),
        spread=spread,
        server_rate=_median(_numbers(attempts, "server_rate")),
        ttft=_median(_numbers(attempts, "ttft")),
        tpot=_median(_numbers(attempts, "tpot")),
        chunk_gap=_median(_numbers(attempts, "chunk_gap")) or None,
        acceptance=_median([one for one in accepted if one is not None]),
        engine_acceptance=_median([one for one in engine if one is not None]),
        acceptance_source=str(_part(attempts[0].figures, "acceptance").get("source", "")),
        estimated=any(attempt.figures.get("estimated_tokens") for attempt in attempts),
        requests=sum(_count(attempt.figures, "requests") for attempt in attempts),
        succeeded=sum(_count(attempt.figures, "succeeded") for attempt in attempts),
        attempts=len(attempts),
        end_to_end=_median(_numbers(attempts, "end_to_end")),
        tokens_per_chunk=_median(_numbers(attempts, "tokens_per_chunk")),
        goodput=_median(_numbers(attempts, "goodput")),
        good_share=_median(_numbers(attempts, "good_share")),
        steady_rate=_median(_numbers(attempts, "steady_rate")),
        steady_seconds=_median(_numbers(attempts, "steady_seconds")),
        rate_bias=_median(_numbers(attempts, "rate_bias")),
    )


def acceptance_length(figures: Mapping[str, Any]) -> float | None:
    """Tokens per verify step of one attempt's figures; None where the engine did not tell."""
    told = _part(figures, "acceptance")
    tokens, steps = _number(told.get("tokens")), _number(told.get("steps"))
    return tokens / steps if tokens is not None and steps else None


def row_text(
    row: CellRow,
    state: RunState,
    known_baselines: Baselines,
    *,
    now: float,
    left: float | None = None,
    live: LiveFigures | None = None,
) -> RowText:
    """The row of one cell.

    Args:
        row: the cell.
        state: its run.
        known_baselines: of `baselines(state)`.
        now: wall time on the agent's clock.
        left: seconds that are foretold for the cell, for pending and running ones.
        live: what is known beside the journal, for the running cell.
    """
    deployment = state.deployments[row.cell.deployment]
    point = row.cell.point
    phase = row.state.phase
    texts: dict[str, Any] = {
        "id": row.cell.id,
        "phase": phase,
        "glyph": GLYPHS[phase],
        "word": phase.value,
        "method": plain_line(deployment.method),
        "tensor_parallel": str(deployment.tensor_parallel),
        "workload": plain_line(point.workload),
        "concurrency": str(point.concurrency) if point.rate is None else point.load,
        "length": str(point.max_tokens),
    }
    if isinstance(row.state, st.Running):
        texts |= _running_texts(row, row.state, now, left, live or LiveFigures())
    elif isinstance(row.state, st.Pending):
        texts |= _pending_texts(row, left, state.held.get(row.cell.deployment, ()))
    elif isinstance(row.state, st.Done):
        texts |= _done_texts(row, state, known_baselines)
    else:
        texts["cause"] = plain_line(short_cause(row.state))
    return RowText(**texts)


def _running_texts(
    row: CellRow, running: st.Running, now: float, left: float | None, live: LiveFigures
) -> dict[str, Any]:
    progress = live.progress
    if progress is not None and (progress.cell != row.cell.id or progress.attempt != running.attempt):
        progress = None
    rate = progress.output_rate if progress is not None else None
    gone = max(0.0, now - running.since)
    texts: dict[str, Any] = {
        "rate": "" if rate is None else f"{rate:.1f}",
        "spread": sparkline(live.rates, 8) if progress is not None else "",
        "acceptance": "" if live.acceptance is None else f"{live.acceptance:.2f}",
        "count": _running_count(row, progress),
        "time": _running_time(gone, left),
        "live": live.current,
        "stale": not live.current,
    }
    if row.stop_requested:
        texts["cause"] = "being skipped" if row.skip_after_stop else "being stopped"
    return texts


def _running_time(gone: float, left: float | None) -> str:
    """`~0:21` to go; `+0:07` beyond what was foretold; the time gone where nothing was."""
    if left is None:
        return clock_time(gone)
    return f"~{clock_time(left - gone)}" if left > gone else f"+{clock_time(gone - left)}"


def _running_count(row: CellRow, progress: CellProgress | None) -> str:
    if row.cell.rounds > 1:
        return f"{len(row.done_attempts())}/{row.cell.rounds}"
    point = row.cell.point
    done = progress.requests_done // max(1, point.requests) if progress is not None else 0
    return f"{done}/{point.repetitions}"


def _pending_texts(row: CellRow, left: float | None, held: Sequence[str]) -> dict[str, Any]:
    assert isinstance(row.state, st.Pending)
    texts: dict[str, Any] = {"time": f"~{clock_time(left)}" if left is not None else ""}
    done = len(row.done_attempts())
    if done:
        texts["count"] = f"{done}/{row.cell.rounds}"
    retry = row.state.automatic_retry_of
    if retry is not None:
        texts["cause"] = plain_line(f"tried again by itself after: {retry.text}")
    if held:
        texts["cause"] = plain_line(f"held back: {'; '.join(held)}")
    return texts


def _done_texts(row: CellRow, state: RunState, known_baselines: Baselines) -> dict[str, Any]:
    figures = cell_figures(row)
    seconds = sum((one.ended or one.started) - one.started for one in row.done_attempts())
    if figures is None:
        return {"cause": "done, without figures", "time": clock_time(seconds)}
    rate = figures.output_rate
    disturbed = is_disturbed(row)
    mark = "!" if disturbed else ("~" if figures.estimated else "")
    return {
        "rate": "" if rate is None else f"{mark}{rate:.1f}",
        "spread": "" if figures.spread is None else f"({figures.spread:.1f})",
        "speed_up": speed_up_text(row, state, known_baselines),
        "acceptance": acceptance_text(row, state, figures),
        "ttft": ttft_text(figures),
        "count": _done_count(row, figures),
        "time": clock_time(seconds),
    }


def is_disturbed(row: CellRow) -> bool:
    """Whether a cell's figures carry a mark: something disturbed an attempt, or not all of them are in the figures."""
    done = row.done_attempts()
    return any(attempt.flags for attempt in done) or len(done) > len(row.compared_attempts())


def speed_up_text(row: CellRow, state: RunState, known: Baselines) -> str:
    """Median tok/s over the baseline's; `≠build` where the baseline was measured on another engine or model."""
    figures = cell_figures(row)
    if figures is None or figures.output_rate is None:
        return ""
    baseline = known.get(point_key(row, state))
    if baseline:
        return f"{figures.output_rate / baseline:.2f}"
    return "≠build" if baseline_is_of_another_engine(row, state, known) else ""


def _done_count(row: CellRow, figures: CellFigures) -> str:
    if row.cell.rounds > 1:
        return f"{figures.attempts}/{row.cell.rounds}"
    repetitions = row.cell.point.repetitions
    return f"{repetitions}/{repetitions}"


def acceptance_text(row: CellRow, state: RunState, figures: CellFigures) -> str:
    """Acceptance length; 1.00 for the baseline by definition, `?` where the engine did not tell."""
    if figures.acceptance is not None:
        return f"{figures.acceptance:.2f}"
    is_baseline = state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline
    return "1.00" if is_baseline else "?"


def ttft_text(figures: CellFigures) -> str:
    """The median, with a dagger where the report leaves it blank: of fewer requests than a 50th percentile needs."""
    text = seconds_short(figures.ttft)
    return f"{text}†" if text and figures.succeeded < REQUESTS_FOR_A_MEDIAN else text


def short_cause(state: st.CellState) -> str:
    """Why a cell has no figures and what to do about it, on one line."""
    match state:
        case st.Failed(cause=cause):
            return f"{cause.text}; {advice(cause)}"
        case st.Blocked(launch=launch, cause=cause):
            return f"{cause.text} (launch {launch} failed); {advice(cause)}"
        case st.Stopped(by=by):
            return f"stopped by {by}; R retry"
        case st.Interrupted(why=why):
            return f"{why}; R retry"
        case st.Skipped(because=because) | st.Pruned(because=because):
            return because
        case st.Unfit(because=because):
            return f"{because}; E edit, R try it anyway"
        case _:
            return ""


def advice(cause: st.Cause) -> str:
    """What can be done about a cause, with the keys."""
    match cause.retry:
        case st.Retry.AS_IS:
            return "can be tried again as it is (R retry)"
        case st.Retry.CHANGE:
            return "retry after a change (E edit, R retry)"
        case st.Retry.NEVER:
            return "this host or build cannot run it (- skip)"


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The newest `width` values as blocks on a scale from 0 to `top` (their maximum by default); gaps are blank."""
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None and math.isfinite(value)]
    highest = top if top is not None else max(known, default=0.0)
    return "".join(_block(value, highest) for value in shown)


def _block(value: float | None, highest: float) -> str:
    if value is None or not math.isfinite(value):
        return " "
    if highest <= 0:
        return _BLOCKS[0]
    step = round(max(0.0, min(1.0, value / highest)) * (len(_BLOCKS) - 1))
    return _BLOCKS[step]


def clock_time(seconds: float) -> str:
    """`0:21`, `12:05`, `1:02:03`: minutes and seconds, hours in front from one hour on."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def seconds_in_words(seconds: float) -> str:
    """`35 s`, `12 min`, `1 h 05 min`: for sentences."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"


def plain_line(text: object) -> str:
    """Anything from outside as one line that is safe to show: controls visible, and lone surrogates too."""
    line = visible_line(str(text))
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode("utf-8")


def seconds_short(seconds: float | None) -> str:
    """`61 ms`, `1.24 s`; empty for None."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _part(figures: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = figures.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _numbers(attempts: Sequence[Attempt], name: str) -> list[float]:
    found = (_number(attempt.figures.get(name)) for attempt in attempts)
    return [value for value in found if value is not None]


def _count(figures: Mapping[str, Any], name: str) -> int:
    return int(_number(figures.get(name)) or 0)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
