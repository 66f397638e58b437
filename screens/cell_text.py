"""The cell under the cursor in words: what it is, what became of it, why, and what to do next."""

from dataclasses import dataclass
from datetime import UTC, datetime

from ddconsole.core import states as st
from ddconsole.core.actions import BY_ID
from ddconsole.core.cell_notes import doubts, measurement_lines
from ddconsole.core.command_cost import start_in_words
from ddconsole.core.figures import DEFINITIONS, WORTH_TELLING
from ddconsole.core.row_text import (
    GLYPHS,
    CellFigures,
    acceptance_text,
    cell_figures,
    clock_time,
    point_key,
    seconds_short,
    sparkline,
    ttft_text,
)
from ddconsole.core.run_state import Attempt
from ddconsole.core.sweep import WorkloadPoint
from screens.cell_facts import CellFacts
from screens.server_text import arguments_lines, deployment_lines, launch_lines, where_lines
from screens.spans import EMPTY, PHASE_ROLES, Line, Role, Span, cut, fitted, joined, labelled, line, shown


def short_lines(facts: CellFacts, width: int, height: int) -> list[Line]:
    """The cell in `height` lines: what matters most, and always which key comes next."""
    problem = _problem(facts, width, most=2)
    if problem is not None:
        room = height - 2 - len(problem.cause) - len(problem.remedy)
        body = [*problem.cause, *problem.log[: max(0, room)], *problem.remedy]
    else:
        body = [*_progress(facts, width), *where_lines(facts, width), *arguments_lines(facts, width)[:1]]
    lines = [_title(facts, width), *body[: height - 2], _next(facts)]
    if len(lines) + 2 <= height:
        more = [*deployment_lines(facts, width), *_workload(facts, width)]
        lines += [EMPTY, _heading("attempts"), *_attempts(facts, width), EMPTY, *more]
    return lines[:height]


def long_lines(facts: CellFacts, width: int) -> list[Line]:
    """Everything about the cell."""
    lines = [*_long_title(facts, width), EMPTY]
    problem = _problem(facts, width, most=8)
    if problem is not None:
        lines += [*problem.cause, *problem.log, *problem.remedy, EMPTY]
    lines += [_next(facts), EMPTY, *_progress(facts, width), *_figures(facts, width)]
    lines += [EMPTY, _heading("deployment"), *deployment_lines(facts, width), *where_lines(facts, width)]
    lines += [*launch_lines(facts, width), *arguments_lines(facts, width)]
    lines += [EMPTY, _heading("workload"), *_workload(facts, width)]
    return [*lines, EMPTY, _heading("attempts"), *_attempts(facts, width)]


def definition_lines(width: int) -> list[Line]:
    """What each figure means; the same text stands in the report."""
    lines: list[Line] = [_heading("what the figures mean"), EMPTY]
    for text in DEFINITIONS.values():
        name, _, meaning = text.partition(": ")
        lines += [line((f" {name}", Role.STRONG)), *labelled("", meaning, width=width, most=4), EMPTY]
    return lines


def _heading(text: str) -> Line:
    return line((f" {text}", Role.ACCENT))


def _long_title(facts: CellFacts, width: int) -> list[Line]:
    """The title, on two lines where one is too narrow to say which cell it is."""
    title, whole = _title(facts, width), _title(facts, 1000)
    return [title] if len(title) == len(whole) else [title, line("   ", *whole[len(title) + 1 :])]


def _title(facts: CellFacts, width: int) -> Line:
    row, point = facts.row, facts.row.cell.point
    phase = row.state.phase
    old = facts.age is not None and isinstance(row.state, st.Running)
    glyph, role = ("?", Role.DIM) if old else (GLYPHS[phase], PHASE_ROLES[phase])
    spans: list[Span] = [(f" {glyph} {row.cell.id} {phase}", role)]
    spans.append((shown(facts.deployment.label), Role.STRONG))
    spans.append((f"{shown(point.workload)} {point.load} {point.max_tokens} tokens", Role.PLAIN))
    latest = row.latest()
    if latest is not None:
        spans.append((f"attempt {latest.number} on launch {latest.launch}", Role.DIM))
    elif isinstance(row.state, st.Blocked):
        spans.append((f"launch {row.state.launch} failed: not tried", Role.DIM))
    if row.cell.derived_from:
        spans.append((f"copy of {row.cell.derived_from}", Role.DIM))
    while len(spans) > 2 and sum(len(text) + 2 for text, _ in spans) > width:
        spans.pop()
    return joined(spans)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why there are no figures."""

    cause: list[Line]
    log: list[Line]
    remedy: list[Line]


def _problem(facts: CellFacts, width: int, most: int) -> _Problem | None:
    """Cause, evidence and what to do, each on at most `most` lines; None where nothing is wrong."""
    match facts.row.state:
        case st.Failed(cause=cause) | st.Blocked(cause=cause):
            return _failure(facts, cause, width, most)
        case st.Unfit(because=because):
            return _Problem(
                labelled("cause", because, Role.WARN, width=width, most=most),
                [],
                labelled("do", "lower budget, context or concurrency; R tries it all the same", width=width),
            )
        case st.Interrupted(why=why):
            remedy = labelled("do", "nothing is wrong with the cell: measure it again", width=width)
            return _Problem(labelled("cause", why, Role.WARN, width=width, most=most), [], remedy)
        case st.Stopped(by=by):
            text = f"stopped by {by}; what was measured is kept, and counts for nothing"
            return _Problem(labelled("cause", text, width=width), [], [])
        case st.Skipped(by=by, because=because):
            return _Problem(labelled("cause", f"left out by {by}: {because}", width=width, most=most), [], [])
        case st.Pruned(because=because):
            return _Problem(labelled("cause", because, width=width, most=most), [], [])
        case st.Pending() if facts.state.held.get(facts.row.cell.deployment):
            return _held_back(facts, width, most)
        case _:
            return None


def _held_back(facts: CellFacts, width: int, most: int) -> _Problem:
    """What the checks before its launch found, each with what to do."""
    findings = facts.state.held[facts.row.cell.deployment]
    lines: list[Line] = []
    for number, text in enumerate(findings):
        lines += labelled("" if number else "held", text, Role.BAD, width=width, most=most)
    remedy = "put it right, then P goes on; or A on the preflight screen accepts it with a reason. It is checked again"
    return _Problem(lines, [], labelled("do", remedy, width=width, most=most))


def _failure(facts: CellFacts, cause: st.Cause, width: int, most: int) -> _Problem:
    lines = labelled("cause", cause.text, Role.BAD, width=width, most=most)
    if isinstance(facts.row.state, st.Blocked) and most > 2:
        text = f"launch {facts.row.state.launch} of its server failed, and would again: this cell was not tried"
        lines += labelled("", text, width=width)
    log: list[Line] = []
    # Where there is room for a line or two, the exception says more than the frame it was raised in.
    evidence = cause.evidence if most > 2 else sorted(cause.evidence, key=lambda one: one.startswith((" ", "\t")))
    for number, one in enumerate(evidence[:6]):
        log += labelled("" if number else "log", one, Role.DIM, width=width, most=most - 1)
    return _Problem(lines, log, labelled("do", cause.do or _retry_in_words(cause), width=width, most=most))


def _retry_in_words(cause: st.Cause) -> str:
    return {
        st.Retry.AS_IS: "try it again as it is",
        st.Retry.CHANGE: "change the cell or its server's flags, then try again",
        st.Retry.NEVER: "nothing: this host or build cannot run it",
    }[cause.retry]


_NEXT: dict[st.CellPhase, tuple[str, ...]] = {
    st.CellPhase.RUNNING: ("stop", "skip", "cell-log"),
    st.CellPhase.PENDING: ("start", "start-now", "edit", "skip"),
    st.CellPhase.DONE: ("retry", "duplicate", "edit", "cell-log"),
    st.CellPhase.FAILED: ("edit", "retry", "skip", "cell-log"),
    st.CellPhase.BLOCKED: ("edit", "retry", "skip", "cell-log"),
    st.CellPhase.UNFIT: ("edit", "retry", "skip"),
    st.CellPhase.PRUNED: ("take-back", "retry", "edit"),
}


def _next(facts: CellFacts) -> Line:
    """The keys that make sense now, the best one first."""
    names = list(_NEXT.get(facts.row.state.phase, ("retry", "edit")))
    cause = getattr(facts.row.state, "cause", None)
    if isinstance(cause, st.Cause) and cause.retry is st.Retry.AS_IS:
        names = ["retry", *(name for name in names if name != "retry")]
    if isinstance(cause, st.Cause) and cause.do.startswith("Read the launch's log"):
        names = ["cell-log", *(name for name in names if name != "cell-log")]
    if isinstance(cause, st.Cause) and cause.retry is st.Retry.NEVER:
        names = ["skip", *(name for name in names if name != "skip")]
    if not facts.steers:
        names = [
            *(["take-control"] if facts.may_take else []),
            *(name for name in names if BY_ID[name].command is None),
        ]
    if not names:
        return EMPTY
    spans: list[Span] = [(" next    ", Role.DIM)]
    for number, name in enumerate(names):
        action = BY_ID[name]
        role = Role.KEY if number else Role.BADGE
        spans += [(f" {action.key} " if not number else action.key, role), (f" {action.label}    ", Role.PLAIN)]
    return tuple(spans)


def _progress(facts: CellFacts, width: int) -> list[Line]:
    state = facts.row.state
    if isinstance(state, st.Running):
        return _running(facts, state, width)
    if isinstance(state, st.Pending):
        return _pending(facts, width)
    figures = cell_figures(facts.row)
    if figures is None:
        return []
    lines = [fitted([(" figure", Role.DIM), *_headline(facts, figures)], width)]
    flags = doubts(facts.row, facts.state, facts.baselines)
    if flags:
        lines += labelled("flagged", "; ".join(flags), Role.WARN, width=width)
    return lines


def _headline(facts: CellFacts, figures: CellFigures) -> list[Span]:
    rate = figures.output_rate
    baseline = facts.baselines.get(point_key(facts.row, facts.state))
    name = facts.state.created.baseline if facts.state.created else "baseline"
    spread = "" if figures.spread is None else f"±{figures.spread:.1f}"
    return [
        ("" if rate is None else f"{rate:.1f} tok/s", Role.STRONG),
        (spread, Role.DIM),
        ("" if rate is None or not baseline else f"{rate / baseline:.2f}× {shown(name)}", Role.GOOD),
        (f"accept {acceptance_text(facts.row, facts.state, figures)}", Role.PLAIN),
        (f"TTFT {ttft_text(figures)}" if figures.ttft is not None else "", Role.PLAIN),
        (f"{figures.succeeded}/{figures.requests} requests", Role.DIM),
        ("† too few for a report's median" if ttft_text(figures).endswith("†") else "", Role.DIM),
    ]


def _running(facts: CellFacts, running: st.Running, width: int) -> list[Line]:
    gone = clock_time(max(0.0, facts.now - running.since))
    live = facts.live
    role = Role.LIVE if live.current else Role.DIM
    progress = live.progress
    spans: list[Span] = [(" now   ", Role.DIM)]
    if progress is not None and progress.output_rate is not None:
        spans.append((f"{progress.output_rate:.1f} tok/s", role))
        spans.append((sparkline(live.rates, max(8, min(40, width - 72))), role))
    if progress is not None:
        failed = f", {progress.requests_failed} failed" if progress.requests_failed else ""
        spans.append((f"{progress.requests_done}/{progress.requests_planned} requests{failed}", Role.PLAIN))
    if live.acceptance is not None:
        spans.append((f"accept {live.acceptance:.2f}", Role.PLAIN))
    spans.append((f"{gone} gone{_time_left(facts, running)}", Role.DIM))
    lines = [fitted(spans, width)]
    if facts.age is not None:
        lines += labelled("unknown", f"not heard for {facts.age:.0f} s: these are the last known values", Role.WARN)
    if facts.row.stop_requested:
        lines += labelled("asked", "its requests are being ended", Role.WARN, width=width)
    return lines


def _time_left(facts: CellFacts, running: st.Running) -> str:
    """What is left of the cell; nothing is promised of one that takes longer than was foretold."""
    if facts.left is None:
        return ""
    left = facts.left - (facts.now - running.since)
    return f", ~{clock_time(left)} left" if left > 0 else f", {clock_time(-left)} longer than foretold"


def _pending(facts: CellFacts, width: int) -> list[Line]:
    assert isinstance(facts.row.state, st.Pending)
    state = facts.state
    lines: list[Line] = []
    retry = facts.row.state.automatic_retry_of
    if retry is not None:
        lines += labelled("again", f"tried again by itself after: {retry.text}", Role.WARN, width=width, most=2)
    live = state.live_launch()
    if facts.row.cell.id in state.queue:
        when = f"number {state.queue.index(facts.row.cell.id) + 1} of the cells that were told to come next"
    elif live is not None and live.deployment == facts.row.cell.deployment:
        when = f"on the running server (launch {live.number}), in order of the table"
    else:
        when = f"with the next launch of {facts.deployment.label}; {start_in_words(state, facts.deployment)}"
    lines += labelled("when", when, width=width, most=2)
    if facts.left is not None:
        lines += labelled("takes", f"about {clock_time(facts.left)}, {facts.basis}", Role.DIM, width=width)
    return lines


def _figures(facts: CellFacts, width: int) -> list[Line]:
    figures = cell_figures(facts.row)
    if figures is None:
        return []
    engine = figures.engine_acceptance
    rows = (
        ("server", "" if figures.server_rate is None else f"{figures.server_rate:.1f} tok/s over the cell's wall time"),
        ("TPOT", seconds_short(figures.tpot) and f"{(figures.tpot or 0) * 1000:.2f} ms per output token"),
        ("gap", _gap_text(figures)),
        ("whole", seconds_short(figures.end_to_end) and f"{figures.end_to_end:.2f} s from sending to the last token"),
        ("steady", _steady_text(figures)),
        ("good", _goodput_text(figures)),
        ("bias", _bias_text(figures)),
        ("accept", f"from {figures.acceptance_source}" if figures.acceptance_source else ""),
        ("engine", "" if engine is None else f"prints {engine:.2f} under the name of acceptance: its own definition"),
        ("tokens", "some output token counts are estimated from chunks" if figures.estimated else ""),
    )
    told = [(name, text) for name, text in rows if text] + measurement_lines(facts.row, facts.state)
    return [one for name, text in told for one in labelled(name, text, width=width)]


def _gap_text(figures: CellFigures) -> str:
    if not seconds_short(figures.chunk_gap):
        return ""
    held = "" if figures.tokens_per_chunk is None else f", {figures.tokens_per_chunk:.2f} tokens in each"
    return f"{(figures.chunk_gap or 0) * 1000:.1f} ms between chunks{held}"


def _steady_text(figures: CellFigures) -> str:
    if figures.steady_rate is None:
        return ""
    return f"{figures.steady_rate:.1f} tok/s in the {figures.steady_seconds or 0:.1f} s in which every stream ran"


def _goodput_text(figures: CellFigures) -> str:
    if figures.goodput is None:
        return ""
    return f"{figures.goodput:.2f} requests/s kept the limits of protocol.slo: {figures.good_share or 0:.0%} of all"


def _bias_text(figures: CellFigures) -> str:
    if figures.rate_bias is None or figures.rate_bias < WORTH_TELLING:
        return ""
    return f"tok/s may be {figures.rate_bias:.1%} too high: the tokens of the first chunk are not told"


def _load_text(point: WorkloadPoint) -> str:
    if point.rate is None:
        return f"{point.concurrency} at a time"
    return f"{point.rate:g} a second ({point.arrivals}), server sized for {point.concurrency}"


def _workload(facts: CellFacts, width: int) -> list[Line]:
    point, sampling = facts.row.cell.point, facts.row.cell.point.sampling
    asked = (
        f"{point.kind} of {point.prompts}: {point.requests} requests x {point.repetitions} repetitions, "
        f"{_load_text(point)}, {point.max_tokens} tokens"
    )
    told = [f"temperature {sampling.temperature:g}", f"seed {sampling.seed}" if sampling.seed is not None else ""]
    told += [f"top-p {sampling.top_p:g}" if sampling.top_p is not None else ""]
    told += ["length fixed (ignore-eos)" if sampling.ignore_eos else "length NOT fixed"]
    limits = f"{point.request_timeout:g} s a request, {point.stall_timeout:g} s without a token"
    lines = labelled("asks", asked, width=width)
    lines += labelled("sample", ", ".join(one for one in told if one), width=width)
    lines += labelled("limits", limits, width=width)
    rounds = facts.row.cell.rounds
    return lines + (labelled("rounds", f"{rounds}, each on a launch of its own", width=width) if rounds > 1 else [])


def _attempts(facts: CellFacts, width: int) -> list[Line]:
    if not facts.row.attempts:
        return [line((" none yet", Role.DIM))]
    return [one for attempt in reversed(facts.row.attempts) for one in _attempt(facts, attempt, width)]


def _attempt(facts: CellFacts, attempt: Attempt, width: int) -> list[Line]:
    began = datetime.fromtimestamp(attempt.started, UTC).astimezone().strftime("%H:%M:%S")
    took = clock_time((attempt.ended if attempt.ended is not None else facts.now) - attempt.started)
    rate = attempt.figures.get("output_rate")
    result = f"{rate:.1f} tok/s" if isinstance(rate, int | float) else ""
    old = "" if attempt.revision == facts.row.cell.revision else "before the edit"
    why = shown(attempt.cause.text) if attempt.cause else (f"by {shown(attempt.by)}" if attempt.by else "")
    head = (
        f" {attempt.number}  {GLYPHS[attempt.outcome]} {attempt.outcome:<11} launch {attempt.launch}  {began}  {took}"
    )
    tail = "  ".join(one for one in (result, old, why) if one)
    return [line((head, PHASE_ROLES[attempt.outcome]), ("  " + cut(tail, max(0, width - len(head) - 3)), Role.PLAIN))]
