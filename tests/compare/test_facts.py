import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddconsole.compare.changes import Change
from ddconsole.compare.comparison import compare
from ddconsole.compare.facts import ENVIRONMENT, NO_FILES, RunFiles, files_of, flat, sections_of
from ddconsole.compare.read import compare_folders
from ddconsole.compare.side import side_of
from ddconsole.core import events as ev
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.readings import read
from ddconsole.report.attempt_reader import attempts_in_memory
from tests.compare.changed_runs import Recipe, made
from tests.screens.ct200 import machine

SMALL = Recipe(methods=("ar",), sizes=(1,), launches=1, driver=None)
IDENTITY: dict[str, Any] = {
    "build": {"version": "0.5.16", "commit": "3f1c2ab"},
    "packages": {"torch": "2.9.1", "triton": "3.5.0"},
    "files": {},
    "environment": {"NCCL_P2P_LEVEL": "SYS"},
    "model": {"model-00001.safetensors": "123 ab"},
}


def changes(before: Recipe, after: Recipe, old: RunFiles = NO_FILES, new: RunFiles = NO_FILES) -> list[Change]:
    sides = [
        side_of(sample.state, attempts_in_memory(sample.attempts), files)
        for sample, files in ((made(before), old), (made(after), new))
    ]
    return list(compare(*sides).changes.found)


def test_kernel_gpus_and_driver_come_from_the_first_sample_of_the_machine() -> None:
    old = machine(1_790_000_000.0)
    new = replace(old, kernel=read("6.12.1", old.at, "uname"), driver=read("590.1", old.at, "nvml"), gpus=old.gpus[:7])
    old = replace(old, kernel=read("6.8.12", old.at, "uname"))
    told = {
        one.name: (one.before, one.after) for one in changes(SMALL, SMALL, RunFiles({}, {}, old), RunFiles({}, {}, new))
    }
    assert told["kernel"] == ("6.8.12", "6.12.1")
    assert told["driver"] == ("580.82.07", "590.1")
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert told["GPUs"] == (f"8 x {name}", f"7 x {name}")
    assert set(told) == {"kernel", "driver", "GPUs", "GPU power limit in W", "GPU UUIDs"}


def test_a_fact_that_one_run_does_not_tell_is_no_change() -> None:
    sides = [
        side_of(made(SMALL).state, attempts_in_memory(made(SMALL).attempts), files)
        for files in (NO_FILES, RunFiles({}, {}, machine(0.0)))
    ]
    found = compare(*sides).changes
    assert found.found == ()
    assert "driver" in found.one_sided
    assert "kernel" not in found.one_sided


def test_packages_variables_and_model_files_of_the_engine_are_facts() -> None:
    def with_engine(identity: dict[str, Any]) -> Any:
        sample = made(SMALL)
        sample.tell(ev.EngineSeen(identity))
        return side_of(sample.state, attempts_in_memory(sample.attempts), NO_FILES)

    other = {
        **IDENTITY,
        "packages": {"torch": "2.10.0", "triton": "3.5.0", "flashinfer": "0.5"},
        "environment": {},
    }
    found = compare(with_engine(IDENTITY), with_engine(other)).changes
    assert [(one.name, one.before, one.after) for one in found.found] == [
        ("engine variable NCCL_P2P_LEVEL", "SYS", None),
        ("package torch", "2.9.1", "2.10.0"),
        ("package flashinfer", None, "0.5"),
    ]
    assert compare(with_engine(IDENTITY), with_engine(IDENTITY)).changes.found == ()


def test_the_command_and_the_variables_of_the_engine_are_of_the_plan_and_secrets_are_not_shown() -> None:
    def files(env: dict[str, str]) -> RunFiles:
        return RunFiles({"engine": {"kind": "sglang", "command": ["/venv/bin/python"], "env": env}}, {}, None)

    (change,) = changes(SMALL, SMALL, files({"HF_TOKEN": "hf_one"}), files({"HF_TOKEN": "hf_two"}))
    assert change.name == "engine env.HF_TOKEN"
    assert "hf_" not in f"{change.before}{change.after}"
    assert change.before != change.after
    assert flat({"a": {"b": None, "c": True}}) == {"a.c": "true"}


def test_files_beside_the_journal_are_read_as_far_as_they_are_there(tmp_path: Path) -> None:
    folder = made(SMALL).write(tmp_path / "run")
    assert files_of(folder) == NO_FILES
    sample = json.dumps(host_state_to_json(machine(0.0)))
    (folder / "telemetry.jsonl.part").write_text(f"{sample}\n{sample[:40]}")
    (folder / "texts.json").write_text('{"prompts": {"five": [{"name": "a", "text": "b"}]}}')
    (folder / "submission.json").write_text("[torn")
    found = files_of(folder)
    assert found.host is not None
    assert found.host.hostname.value == "ct200"
    assert found.submission == {}
    names = {f"{one.name} {name}" for one in sections_of(made(SMALL).state, None, found) for name in one.facts}
    assert "texts five" in names
    environment = next(one for one in sections_of(made(SMALL).state, None, found) if one.about == ENVIRONMENT)
    assert environment.facts["driver"] == "580.82.07"
    comparison, warnings = compare_folders(folder, folder)
    assert comparison.changes.found == ()
    assert warnings == ()


@pytest.mark.parametrize("damage", ["", "{}\n", "\x00" * 40])
def test_a_damaged_sample_of_the_machine_is_left_out(tmp_path: Path, damage: str) -> None:
    (tmp_path / "telemetry.jsonl").write_text(damage)
    assert files_of(tmp_path).host is None
