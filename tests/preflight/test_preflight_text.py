"""Findings for people, and as JSON."""

from dataclasses import replace

import pytest

from ddconsole.preflight.check import Finding, Outcome, finding_from_json, finding_to_json
from ddconsole.preflight.preflight_text import exit_status, preflight_lines

PORT = Finding(
    id="port.free",
    proves="the servers' ports are free",
    outcome=Outcome.FAIL,
    observed="port 30000 is taken by pid 812",
    expected="free",
    evidence=("bind 127.0.0.1:30000: Address already in use; pid 812 \x1b[31mnginx",),
    remedy="stop what listens there (look at it first: it may be somebody's server), or change the plan's port",
    blocks=("launch",),
    about="port 30000",
)
GOOD = Finding("disk.space", "results and logs can be written", Outcome.PASS, "500 GiB free")
LINK = Finding("host.reachable", "", Outcome.WARN, "round trip 400 ms", remedy="nothing")
BLIND = Finding("cuda.init", "", Outcome.UNKNOWN, "no answer within 25 s")
LEFT_OUT = Finding("dev.uvm-open", "", Outcome.SKIP, "the plan uses no GPU")


def test_what_is_wrong_comes_first_with_evidence_and_remedy() -> None:
    lines = preflight_lines([GOOD, LEFT_OUT, BLIND, LINK, PORT], 80)

    heads = [line.split()[1] for line in lines if line and not line.startswith(" ") and line[0] in "✗!?✓–"]
    assert heads == ["fail", "warn", "unknown", "pass", "skip"]
    assert lines[0] == "✗ fail    port.free  port 30000 is taken by pid 812"
    assert lines[1] == "  expected   free"
    assert lines[2].startswith("  seen       bind 127.0.0.1:30000")
    assert any(line.startswith("  do         stop what listens there") for line in lines)
    assert "  holds back launch" in lines
    assert lines[-1] == "1 failed, 1 warning, 1 unknown, 1 passed, 1 skipped"
    assert max(len(line) for line in lines) <= 80
    assert not any("\x1b" in line for line in lines)


def test_simulated_findings_say_so() -> None:
    assert "SIMULATED" in preflight_lines([replace(GOOD, simulated=True)], 80)[0]


def test_long_evidence_is_cut_with_its_count() -> None:
    lines = preflight_lines([replace(PORT, evidence=tuple(f"line {number}" for number in range(9)))], 80)

    assert any("… and 3 lines more" in line for line in lines)
    assert not any("line 6" in line for line in lines)


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([GOOD, LEFT_OUT], 0),
        ([GOOD, LINK], 1),
        ([GOOD, BLIND], 1),
        ([GOOD, LINK, PORT], 2),
    ],
)
def test_exit_status(findings: list[Finding], status: int) -> None:
    assert exit_status(findings) == status


def test_json_and_back() -> None:
    assert finding_from_json(finding_to_json(PORT)) == PORT
    later = finding_to_json(PORT) | {"outcome": "purple", "invented_later": 1}
    assert finding_from_json(later).outcome is Outcome.UNKNOWN, "what is not known is never green"
    with pytest.raises(ValueError, match="not a finding"):
        finding_from_json({"id": "x"})
