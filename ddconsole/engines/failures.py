"""Why a server failed: from the tail of its log, its exit status and who ended it, to one cause with evidence.

The order of looking (most telling first): the last crash's tracebacks, the first of them that says something; the rest
of the tail; wrapper lines; the exit status; and UNKNOWN, which keeps the last lines. Exit codes alone say little:
SGLang kills itself with SIGKILL after every crash.
"""

import functools
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.core.states import Cause, Retry
from ddconsole.engines.catalogue import (
    LONGEST_MATCHED,
    MOST_EVIDENCE,
    Signature,
    cause_of,
    signatures,
    visible_evidence,
)
from ddconsole.engines.engine import LogNotice
from ddconsole.engines.log_records import PREFIX, records

LONGEST_TAIL = 400
"""Lines of the log that are looked at, runs of steady ones (decode, prefill, access) counted as one."""

LONGEST_RAW_TAIL = 8000
"""Lines that need be given: a server whose detokenizer died decodes on for a minute, line after line."""

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_HEALTHY = ("Decode batch", "Prefill batch", 'HTTP/1.1" 200', " I slot ")
_QUOTED = ("server_args=", "Receive: obj=", "Finish: obj=")
_VERDICT = re.compile(
    r"^(?:\[[^\]]*\] )?(?:[\w.]*(?:Error|Exception)\b.*:|\S+(?: \S+)?: error: |error: |ERROR: )"
    r"|^\d[\d.]* E | crashed with exit code| watchdog timeout \("
)


@dataclass(frozen=True, slots=True)
class _Traceback:
    """A run of lines, chained exceptions included; `end` is one behind its last line."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Found:
    entry: Signature
    at: int
    match: re.Match[str]


def classify(
    engine_kind: str, log_tail: Sequence[str], phase: str, exit_status: int | None, we_stopped_it: bool
) -> Cause:
    """One cause for a server that failed to start, died, or had to be ended.

    Args:
        engine_kind: `sglang`, `llamacpp`, ...
        log_tail: the last lines of its log, without newlines; `LONGEST_RAW_TAIL` of them are enough.
        phase: what it was doing, in the engine's terms (the last step), for the words on screen.
        exit_status: of its main process, negative for a signal; None while it lives.
        we_stopped_it: the signal that ended it was ours, so neither status nor what died after it is a cause.
    """
    lines = _condensed([line for raw in log_tail[-LONGEST_RAW_TAIL:] for line in records(raw)])[-LONGEST_TAIL:]
    died = exit_status is not None and not we_stopped_it
    known = signatures(engine_kind)
    primary = tuple(one for one in known if one.rank == "primary" and one.phase != "request")
    found = _in_tracebacks(lines, primary) or _in_tail(lines, primary, generic=died)
    if found is None and not we_stopped_it and not _last_crash(lines):
        # An exception that nobody knows says more than the wrapper that reports it.
        found = _in_tail(lines, tuple(one for one in known if one.rank == "secondary"), generic=died)
    if found is not None:
        return cause_of(found.entry, _evidence(lines, found.at), phase, found.match.groupdict())
    return _without_words(lines, exit_status, we_stopped_it=we_stopped_it)


def noise_notice(line: str, engine_kind: str = "sglang") -> LogNotice | None:
    """The mark that a live line gets: noise annotates, a line that passes judgement is fatal; None for most lines."""
    for entry in _noise(engine_kind):
        match = entry.search(line)
        if match is not None:
            return LogNotice(cause_of(entry, (line,), found=match.groupdict()), fatal=False)
    if (
        "rror" not in line
        and "xception" not in line
        and " E " not in line
        and "crashed" not in line
        and "watchdog timeout" not in line
    ):
        return None
    if any(word in line for word in _QUOTED) or _VERDICT.search(line[:LONGEST_MATCHED]) is None:
        return None
    found = _best([_Found(entry, 0, match) for entry in _fatal(engine_kind) if (match := entry.search(line))])
    if found is None:
        return None
    cause = cause_of(found.entry, (line,), found=found.match.groupdict())
    return LogNotice(cause, fatal=found.entry.phase != "request")


@functools.cache
def _noise(engine_kind: str) -> tuple[Signature, ...]:
    return tuple(one for one in signatures(engine_kind) if one.rank == "noise" and not one.generic)


@functools.cache
def _fatal(engine_kind: str) -> tuple[Signature, ...]:
    judged = ("primary", "secondary")
    return tuple(one for one in signatures(engine_kind) if one.rank in judged and not one.generic)


# --- where to look ---------------------------------------------------------------------------------------------


def _condensed(lines: Sequence[str]) -> list[str]:
    """Of each run of steady lines the last one."""
    kept: list[str] = []
    steady = False
    for line in lines:
        now = _is_steady(line)
        if now and steady:
            kept[-1] = line
        else:
            kept.append(line)
        steady = now
    return kept


def _is_steady(line: str) -> bool:
    return any(word in line for word in _HEALTHY)


def _tracebacks(lines: Sequence[str]) -> list[_Traceback]:
    found: list[_Traceback] = []
    at = 0
    while at < len(lines):
        if _TRACEBACK in lines[at]:
            end = _end_of_traceback(lines, at)
            if found and any(word in line for line in lines[found[-1].end : at] for word in _CHAINED):
                found[-1] = _Traceback(found[-1].start, end)
            else:
                found.append(_Traceback(at, end))
            at = end
        else:
            at += 1
    return found


def _end_of_traceback(lines: Sequence[str], start: int) -> int:
    """One behind the exception's own lines: its head, and what follows until a blank line or the next record."""
    at = start + 1
    while at < len(lines) and (lines[at].startswith((" ", "\t")) or not lines[at].strip()):
        at += 1
    while at < len(lines) and lines[at].strip() and _TRACEBACK not in lines[at] and not PREFIX.match(lines[at]):
        at += 1
    return at


def _last_crash(lines: Sequence[str]) -> list[_Traceback]:
    """The tracebacks since the server last worked: those of other ranks are consequences, and come later."""
    every = _tracebacks(lines)
    if not every:
        return []
    last = every[-1].start
    healthy = max((at for at in range(last) if _is_steady(lines[at])), default=-1)
    return [one for one in every if one.start > healthy] or every[-1:]


def _in_tracebacks(lines: Sequence[str], entries: Sequence[Signature]) -> _Found | None:
    unexplained = False
    for one in _last_crash(lines):
        found = _best(_matches(lines, range(one.start, one.end), entries, generic=True))
        if found is not None and not (unexplained and found.entry.tier >= 3):
            return found
        unexplained = True
    return None


def _in_tail(lines: Sequence[str], entries: Sequence[Signature], *, generic: bool) -> _Found | None:
    """Outside tracebacks: a line of the argument parser, of uvicorn, of llama.cpp's loader."""
    handled = {at for one in _tracebacks(lines) for at in range(one.start, one.end)}
    rest = [at for at in range(len(lines)) if at not in handled]
    return _best(_matches(lines, rest, entries, generic=generic))


def _matches(
    lines: Sequence[str], where: Sequence[int], entries: Sequence[Signature], *, generic: bool
) -> list[_Found]:
    found = []
    for at in where:
        line = lines[at]
        if any(word in line for word in _QUOTED):
            continue
        for entry in entries:
            if entry.generic and not generic:
                continue
            match = entry.search(line)
            if match is not None:
                found.append(_Found(entry, at, match))
    return found


def _best(found: Sequence[_Found]) -> _Found | None:
    """A cause before a wrapper, the most specific; of equals the engine's own, then the earlier line."""

    def order(one: _Found) -> tuple[bool, int, bool, int]:
        return one.entry.rank != "primary", one.entry.tier, one.entry.engine in {"any", "host"}, one.at

    return min(found, key=order, default=None)


# --- what to show ----------------------------------------------------------------------------------------------


def _evidence(lines: Sequence[str], at: int) -> list[str]:
    """The frame that raised, and the line that matched with what follows it in the same record."""
    before = at
    while before > 0 and at - before < 4 and lines[before - 1].startswith(("  ", "\t")):
        before -= 1
    frame = [line for line in lines[before:at] if line.strip(" ^~\t")]
    after = at + 1
    while after < len(lines) and lines[after].strip() and not PREFIX.match(lines[after]):
        after += 1
    return [*frame[-3:], *lines[at:after]][:MOST_EVIDENCE]


def _without_words(lines: Sequence[str], exit_status: int | None, *, we_stopped_it: bool) -> Cause:
    if we_stopped_it:
        last = visible_evidence(_last_lines(lines))
        return Cause("STOPPED", "ddconsole ended the server", last, "Start it again.", Retry.AS_IS)
    crash = _last_crash(lines)
    if crash:
        shown = _unknown_traceback(lines, crash[0])
        head = shown[-1] if shown else ""
        return Cause("UNKNOWN", f"unknown failure: {head}", tuple(shown), "Read the launch's log.", Retry.CHANGE)
    by_status = _of_exit_status(exit_status)
    evidence = visible_evidence(_last_lines(lines))
    if by_status is None:
        return Cause("UNKNOWN", "the server failed without saying why", evidence, "Read the launch's log.")
    id_, text, do, retry = by_status
    return Cause(id_, text, evidence, do, retry)


def _unknown_traceback(lines: Sequence[str], one: _Traceback) -> list[str]:
    """Its last lines, ending with the exception's head."""
    end = one.end
    heads = [at for at in range(one.start + 1, end) if not lines[at].startswith((" ", "\t")) and ":" in lines[at]]
    last = heads[-1] + 1 if heads else end
    kept = [line for line in lines[one.start : last] if line.strip(" ^~\t")]
    return list(visible_evidence(kept[-MOST_EVIDENCE:]))


def _last_lines(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip()][-MOST_EVIDENCE:]


def _of_exit_status(status: int | None) -> tuple[str, str, str, Retry] | None:
    if status is None:
        return None
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number == signal.SIGKILL:
        do = "Look at the kernel log for an out-of-memory kill (dmesg, memory.events), then retry."
        return "KILLED", "the server was killed (SIGKILL) without a word", do, Retry.AS_IS
    if number == signal.SIGSEGV:
        return "SEGFAULT", "the server crashed (segmentation fault)", "Retry once; then another build.", Retry.AS_IS
    if number == signal.SIGABRT:
        return "ABORTED", "the server aborted itself (SIGABRT)", "Retry once; then another build.", Retry.AS_IS
    if number > 0:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return "SIGNALLED", f"something else ended the server ({name})", "Find out who, then retry.", Retry.AS_IS
    if status == 2:
        return "ARG-REFUSED", "the build refused its arguments", "Compare them with its --help.", Retry.CHANGE
    if status == 0:
        return "EXITED", "the server ended by itself, without an error", "Read the launch's log.", Retry.AS_IS
    return "UNKNOWN", f"the server exited with status {status}", "Read the launch's log.", Retry.CHANGE
