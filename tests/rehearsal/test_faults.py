import json
from pathlib import Path

import pytest

from ddconsole.rehearsal.arguments import ServerArguments, parse
from ddconsole.rehearsal.faults import FaultFileError, FaultName, FaultRule, claim_fault, read_faults, write_faults


def server(*flags: str, name: str = "run-c001") -> ServerArguments:
    return parse(["--model-path", "m", "--served-model-name", name, *flags], {})


TREE = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "d", "--speculative-ddtree-budget", "32")


def claims(folder: Path, arguments: ServerArguments, starts: int) -> list[FaultName | None]:
    found = [claim_fault(folder, arguments) for _ in range(starts)]
    return [rule.fault if rule else None for rule in found]


def test_a_rule_hits_as_often_as_it_says_and_survives_the_servers(tmp_path: Path) -> None:
    write_faults(tmp_path, [FaultRule(FaultName.OOM, times=2)])
    assert claims(tmp_path, server(), 4) == [FaultName.OOM, FaultName.OOM, None, None]


def test_a_rule_without_a_limit_hits_every_start(tmp_path: Path) -> None:
    write_faults(tmp_path, [FaultRule(FaultName.DRIVER_FAULT, times=None)])
    assert claims(tmp_path, server(), 5) == [FaultName.DRIVER_FAULT] * 5


def test_a_rule_may_name_the_start_it_hits(tmp_path: Path) -> None:
    write_faults(tmp_path, [FaultRule(FaultName.OOM, {"method": "ddtree-b32", "start": 2})])
    assert claims(tmp_path, server(), 2) == [None, None]
    assert claims(tmp_path, server(*TREE), 3) == [None, FaultName.OOM, None]


@pytest.mark.parametrize(
    "match",
    [
        {"method": "ddtree-b32"},
        {"--speculative-ddtree-budget": 32, "tp": 1},
        {"speculative_algorithm": "DDTREE"},
        {"served_name": "c001"},
        {"budget": 32, "tensor_parallel": 1},
    ],
)
def test_rules_match_by_flags_by_method_and_by_name(tmp_path: Path, match: dict[str, object]) -> None:
    write_faults(tmp_path, [FaultRule(FaultName.OOM, match, times=None)])
    assert claims(tmp_path, server(*TREE), 1) == [FaultName.OOM]
    assert claims(tmp_path, server("--tp-size", "4", name="other"), 1) == [None]


def test_the_first_rule_that_still_counts_is_taken(tmp_path: Path) -> None:
    write_faults(tmp_path, [FaultRule(FaultName.OOM), FaultRule(FaultName.HANG_LOADING)])
    assert claims(tmp_path, server(), 3) == [FaultName.OOM, FaultName.HANG_LOADING, None]


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    rules = {
        "rules": [{"match": {"tp": 4}, "fault": "crash-streaming", "at_chunk": 20, "at_request": 3, "times": None}]
    }
    (tmp_path / "faults.json").write_text(json.dumps(rules), encoding="utf-8")
    assert read_faults(tmp_path) == (
        FaultRule(FaultName.CRASH_STREAMING, {"tp": 4}, times=None, at_request=3, at_chunk=20),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON object"),
        ('{"rules": [{"fault": "no-such"}]}', "rule 1: fault 'no-such' is none of crash-loading"),
        ('{"rules": [{"fault": "oom", "when": 3}]}', "rule 1: unknown field 'when'"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "faults.json").write_text(text, encoding="utf-8")
    with pytest.raises(FaultFileError, match=message):
        read_faults(tmp_path)
