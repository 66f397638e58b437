"""What an operator mistypes or leaves out is said at once, in words that help."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from sweeps import cells, deployment, submission

from ddconsole import cli
from ddconsole.commands.connection import UsageProblem
from ddconsole.commands.preflight import _profile_place
from ddconsole.commands.run import _checked, read_sweep
from ddconsole.commands.stage import _confirm
from ddconsole.commands.staying import _Lines
from ddconsole.core.coming_back import come_back
from ddconsole.link.client import LinkPhase
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.preflight.check import Finding, Outcome, finding_to_json
from tests.screens import ct200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["host", "prepare"], "host prepare: which host? ddconsole host prepare HOST"),
        (["preflight", "demo", "--because", "ours"], "--because is the reason of --accept ID"),
        (["preflight", "demo", "--accept", "gpu.xid"], "an accepted finding needs a reason: --because TEXT"),
        (["run", "no-such-plan", "--name", "Night run"], "run id: "),
    ],
)
def test_it_is_said_before_anything_is_read_or_reached(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"ddconsole: {said}")


def test_a_model_without_a_source_cannot_be_staged() -> None:
    with pytest.raises(UsageProblem, match=r"does not say from where to copy: write model: \{source: FOLDER\}"):
        _confirm(argparse.Namespace(yes=True), read_sweep("demo"), "local")


def test_it_is_said_where_a_good_host_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    assert _profile_place("local") == f"{tmp_path}/.profile.json"
    assert _profile_place("ct200") == ".profile.json beside the runs of the agent on ct200"


def test_a_run_is_come_back_to_by_its_host() -> None:
    assert come_back("night", "ct200") == "ddconsole attach night --host ct200"
    assert come_back("night", "local") == "ddconsole attach night"


def test_a_link_of_which_nothing_is_known_ends_in_no_colon(capsys: pytest.CaptureFixture[str]) -> None:
    feed, lines = ct200.feed(cells=1), _Lines()
    feed.set_link(LinkPhase.CONNECTING)
    lines.look(feed)
    feed.set_link(LinkPhase.RECONNECTING, "ct200: reset")
    lines.look(feed)
    assert capsys.readouterr().out.splitlines()[:2] == ["  link connecting", "  link reconnecting: ct200: reset"]


class Checked:
    """An agent whose checks fail so often."""

    def __init__(self, failing: int) -> None:
        self._failing = failing

    async def preflight(self, *_: object) -> list[Mapping[str, Any]]:
        return [
            finding_to_json(Finding(f"check.{n}", "proves", Outcome.FAIL, "observed", "expected"))
            for n in range(self._failing)
        ]


@pytest.mark.parametrize(
    ("failing", "said"),
    [(1, "1 check fails: nothing was begun. Put it right,"), (2, "2 checks fail: nothing was begun. Put them right,")],
)
async def test_one_check_is_one(failing: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    order = submission([deployment("d01")], cells("d01", 1))
    assert not await _checked(cast("HttpAgentClient", Checked(failing)), order)
    assert said in capsys.readouterr().err
