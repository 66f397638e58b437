"""Engine and model are asked before each launch: a change pauses the sweep, says what, and begins a group."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeps import TREE_SERVER, cells, deployment, directory, ended, phases, submission, until

from ddconsole.agent.content_marks import ContentMarks
from ddconsole.agent.engine_watch import EngineWatch
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.engine_identity import engine_changes
from ddconsole.core.wire import Command
from ddconsole.engines.register import engine
from ddconsole.report.attempt_reader import attempts_in_folder
from ddconsole.report.usable_attempts import usable_attempts

ENGINE = f"""
import runpy, sys
from pathlib import Path
if "--version" in sys.argv:
    print("some warning of the driver")
    print("version: " + Path(__file__).with_name("VERSION").read_text())
else:
    sys.argv[0] = {str(TREE_SERVER)!r}
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.engine
async def test_a_new_version_between_two_launches_pauses_and_is_a_group_of_its_own(
    service: Service, tmp_path: Path
) -> None:
    program, model = tmp_path / "engine.py", tmp_path / "model.gguf"
    program.write_text(ENGINE)
    model.write_bytes(b"weights")
    (tmp_path / "VERSION").write_text("5123 (abc)")
    order = submission([deployment("d01", pace=0.02), deployment("d02", "other")], cells("d01", 1) + cells("d02", 1, 2))
    order = replace(
        order,
        engine={**order.engine, "command": [sys.executable, str(program)]},
        model={"path": str(model), "draft": None, "source": None},
    )
    service.submit(order)
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    (tmp_path / "VERSION").write_text("5200 (def)")
    model.write_bytes(b"Weights")

    state = await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED)
    assert "version 5123 (abc) → 5200 (def); model file model.gguf changed" in state.paused_because
    assert "never mixed" in state.paused_because
    assert len(state.launches) == 1
    answer = service.command(directory(service), Command("go", "resume", "test"))
    assert answer.taken
    state = await until(service, "test-run", ended)

    assert [row.state.phase for row in state.cells.values()] == [st.CellPhase.DONE] * 2, phases(state)
    assert [row.attempts[0].group for row in state.cells.values()] == [0, 1]
    run = directory(service)
    builds = [
        attempt_from_json(json.loads(run.attempt(name, 1).read_bytes())).fingerprint_parts["build"]["version"]
        for name in state.cells
    ]
    assert builds == ["5123 (abc)", "5200 (def)"]
    _, other = usable_attempts(state, attempts_in_folder(run.path, state))
    assert other.counted == []
    assert "does not compare with the others" in other.warnings[0]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package named sglang in a git checkout, as an editable install is."""
    folder = tmp_path / "sglang-fork"
    (folder / "sglang").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text("")
    (folder / "sglang" / "server.py").write_text("x = 1\n")
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def watch_of(checkout: Path, **model: Any) -> EngineWatch:
    order = submission([deployment("d01")], cells("d01", 1))
    command = [sys.executable, "-m", "sglang.launch_server"]
    settings = {"kind": "sglang", "command": command, "env": {"PYTHONPATH": str(checkout)}, "cwd": None}
    return EngineWatch(replace(order, engine=settings, model=model), engine("sglang"))


async def test_an_uncommitted_change_a_new_file_and_a_commit_are_seen(checkout: Path) -> None:
    watch = watch_of(checkout)
    first = await watch.look()
    assert first["build"]["commit"]
    assert first["packages"]["aiohttp"]
    assert engine_changes(first, await watch.look()) == ()

    (checkout / "sglang" / "server.py").write_text("x = 2\n")
    second = await watch.look()
    assert engine_changes(first, second) == ("uncommitted changes are there now",)
    (checkout / "sglang" / "patch.py").write_text("y = 1\n")
    third = await watch.look()
    assert engine_changes(second, third) == ("uncommitted changes are others now",)
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "second")
    fourth = await watch.look()
    changes = engine_changes(third, fourth)
    assert [one.split()[0] for one in changes] == ["commit", "uncommitted"]
    assert watch.asked_seconds < 20


async def test_configuration_is_seen_and_no_secret(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(checkout)
    before = await watch.look()
    monkeypatch.setenv("NCCL_P2P_LEVEL", "SYS")
    monkeypatch.setenv("SGLANG_API_KEY", "sk-1234567890")
    after = await watch.look()
    assert engine_changes(before, after) == ("variable NCCL_P2P_LEVEL none → SYS",)
    assert "sk-1234567890" not in json.dumps(after)


def test_a_copy_of_a_model_is_the_same_and_other_weights_are_not(tmp_path: Path) -> None:
    weights = bytes(range(256)) * 200_000
    first, copy, other = (tmp_path / name / "m.safetensors" for name in ("first", "copy", "other"))
    for path in (first, copy, other):
        path.parent.mkdir()
    first.write_bytes(weights)
    copy.write_bytes(weights)
    other.write_bytes(bytes(one ^ 1 for one in weights[:1000]) + weights[1000:])
    marks = ContentMarks()
    assert marks.of([first]) == marks.of([copy])
    assert marks.of([first]) != marks.of([other])
    assert marks.of([tmp_path / "nowhere"]) == {}
