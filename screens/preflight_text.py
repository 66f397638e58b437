"""What the checks found as lines: what stands in the way first."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddconsole.core.wire import StageStatus
from screens.spans import EMPTY, Line, Role, Span, cut, joined, labelled, line, shown

_ORDER = ("fail", "unknown", "warn", "skip", "pass")
_GLYPHS = {"fail": "✗", "unknown": "?", "warn": "!", "skip": "–", "pass": "✓"}
_ROLES = {"fail": Role.BAD, "unknown": Role.WARN, "warn": Role.WARN, "skip": Role.DIM, "pass": Role.GOOD}


def ordered(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Failed ones first, then unknown, warned, skipped, passed; what is none of them counts as unknown."""
    return sorted(findings, key=lambda one: _ORDER.index(outcome_of(one)))


def outcome_of(finding: Mapping[str, Any]) -> str:
    """One of the five outcomes. Anything else is unknown: never green."""
    told = str(finding.get("outcome", ""))
    return told if told in _ORDER else "unknown"


def summary_line(findings: Sequence[Mapping[str, Any]]) -> Line:
    """How many of each, and whether a launch is held back."""
    counts = {outcome: sum(outcome_of(one) == outcome for one in findings) for outcome in _ORDER}
    spans: list[Span] = [
        (f"{_GLYPHS[name]} {number} {name}", _ROLES[name]) for name, number in counts.items() if number
    ]
    blocking = sum(_holds_back(one) for one in findings)
    verdict = f"{blocking} hold back the launch" if blocking else "nothing holds back the launch"
    return joined([(" ", Role.PLAIN), *spans, (verdict, Role.BAD if blocking else Role.GOOD)])


def finding_line(finding: Mapping[str, Any], width: int, *, chosen: bool) -> Line:
    """Glyph, outcome, what it proves, what was seen."""
    outcome = outcome_of(finding)
    proves = shown(finding.get("proves") or finding.get("id", ""))
    room = max(20, width - 12)
    what = cut(proves, room // 2)
    seen = _text(finding.get("observed"))
    bar = "▌" if chosen else " "
    return line(
        (bar, Role.ACCENT),
        (f"{_GLYPHS[outcome]} {outcome:<8}", _ROLES[outcome]),
        (what.ljust(room // 2), Role.STRONG if chosen else Role.PLAIN),
        ("  " + cut(seen, room - room // 2 - 2), Role.DIM if outcome in {"pass", "skip"} else Role.PLAIN),
    )


def finding_lines(finding: Mapping[str, Any], width: int, *, most: int = 6) -> list[Line]:
    """Everything that was found, and what to do."""
    outcome = outcome_of(finding)
    lines: list[Line] = [
        line((f" {_GLYPHS[outcome]} {outcome}  ", _ROLES[outcome]), (shown(finding.get("id", "")), Role.STRONG))
    ]
    lines += labelled("proves", _text(finding.get("proves")), width=width, most=2)
    for name, label, role in (
        ("observed", "seen", Role.PLAIN),
        ("expected", "wanted", Role.PLAIN),
        ("remedy", "do", Role.KEY),
        ("accepted", "accepted", Role.WARN),
        ("evidence", "log", Role.DIM),
    ):
        text = _text(finding.get(name))
        if text:
            lines += labelled(label, text, role, width=width, most=most)
    if _holds_back(finding):
        lines += labelled("blocks", "no server is started while this stands", Role.BAD, width=width)
    return lines or [EMPTY]


def _holds_back(finding: Mapping[str, Any]) -> bool:
    return bool(finding.get("blocks")) and outcome_of(finding) == "fail" and not finding.get("accepted")


def staging_line(status: StageStatus) -> Line:
    """How far the staging of the model is, or what came of it."""
    if status.problem:
        return line(
            (f" staging {status.phase}: {shown(status.problem)}", Role.BAD), (f"  {shown(status.do)}", Role.DIM)
        )
    if status.phase == "done":
        return line((" model and draft are staged; ", Role.GOOD), ("r", Role.KEY), (" checks again", Role.DIM))
    of = f" of {status.total / 1024**3:.1f}" if status.total else ""
    return line((f" staging {shown(status.file or status.what)}: {status.done / 1024**3:.1f}{of} GiB", Role.LIVE))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(name)} {shown(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(shown(one) for one in value)
    return shown(value)
