"""Findings as text: what is wrong first, with its evidence and what to do."""

import textwrap
from collections.abc import Sequence

from ddconsole.core.visible_text import visible_line
from ddconsole.preflight.check import Finding, Outcome

GLYPHS = {Outcome.FAIL: "✗", Outcome.WARN: "!", Outcome.UNKNOWN: "?", Outcome.PASS: "✓", Outcome.SKIP: "–"}
_ORDER = tuple(GLYPHS)
_LABEL = 10
"""Columns of the labels under a finding."""
_MOST_EVIDENCE = 6


def exit_status(findings: Sequence[Finding]) -> int:
    """0: all passed, did not apply or are accepted; 1: a warning, or something could not be measured; 2: a failure."""
    outcomes = {finding.outcome for finding in findings if not finding.accepted}
    if Outcome.FAIL in outcomes:
        return 2
    return 1 if outcomes & {Outcome.WARN, Outcome.UNKNOWN} else 0


def preflight_lines(findings: Sequence[Finding], width: int = 80) -> list[str]:
    """All findings in lines of at most `width` columns: failures, warnings, unknown, then one line for each other."""
    ordered = sorted(findings, key=lambda finding: _ORDER.index(finding.outcome))
    lines: list[str] = []
    for finding in ordered:
        lines.extend(_finding_lines(finding, max(width, 40)))
    return [*lines, "", _summary(findings)]


def _finding_lines(finding: Finding, width: int) -> list[str]:
    simulated = "SIMULATED " if finding.simulated else ""
    head = f"{GLYPHS[finding.outcome]} {finding.outcome.value:<7} {finding.id}  {simulated}"
    if finding.outcome in {Outcome.PASS, Outcome.SKIP}:
        line = visible_line(head + finding.observed)
        return [line if len(line) <= width else line[: width - 1] + "…"]
    lines = _wrapped(head + finding.observed, "", width)
    shown = finding.evidence[:_MOST_EVIDENCE]
    rest = len(finding.evidence) - len(shown)
    held = ", ".join(finding.blocks) if finding.outcome is Outcome.FAIL and not finding.accepted else ""
    for label, texts in (
        ("expected", (finding.expected,)),
        ("seen", (*shown, *([f"… and {rest} lines more"] if rest else []))),
        ("do", (finding.remedy,)),
        ("accepted", (finding.accepted,)),
        ("holds back", (held,)),
    ):
        for place, text in enumerate(filter(None, texts)):
            lines.extend(_wrapped(text, f"  {'' if place else label:<{_LABEL}} ", width))
    return lines


def _wrapped(text: str, first: str, width: int) -> list[str]:
    after = " " * (_LABEL + 3)
    return textwrap.wrap(
        visible_line(text), width, initial_indent=first, subsequent_indent=after, break_on_hyphens=False
    )


def _summary(findings: Sequence[Finding]) -> str:
    counts = {outcome: sum(finding.outcome is outcome for finding in findings) for outcome in _ORDER}
    words = {
        Outcome.FAIL: "failed",
        Outcome.WARN: "warning" if counts[Outcome.WARN] == 1 else "warnings",
        Outcome.UNKNOWN: "unknown",
        Outcome.PASS: "passed",
        Outcome.SKIP: "skipped",
    }
    return ", ".join(f"{counts[outcome]} {words[outcome]}" for outcome in _ORDER if counts[outcome]) or "no checks"
