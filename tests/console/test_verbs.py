"""Words of single verbs, without a host."""

import pytest

from ddconsole.cli import parser
from ddconsole.commands.stage import stage_line
from ddconsole.core.wire import StageStatus


@pytest.mark.parametrize("phase", ["looking", "copying", "checking"])
def test_what_staging_does_is_named_from_the_first_line_on(phase: str) -> None:
    assert stage_line(StageStatus("looking"), 0.0) == "looking at what is there"
    assert stage_line(StageStatus("looking", "/m", "a.safetensors"), 0.0) == "looking at /m a.safetensors"
    line = stage_line(StageStatus(phase, "/m", done=1 << 30, total=4 << 30), 0.0)
    assert line == f"{phase} /m: 1.0 of 4.0 GiB"


@pytest.mark.parametrize(
    "words",
    [["stop-run"], ["pause", "run"], ["skip", "run", "c001"], ["start-now", "run", "c001"], ["debts", "--settle"]],
)
def test_what_the_console_asks_about_takes_yes_on_the_command_line(words: list[str]) -> None:
    assert parser().parse_args([*words, "--yes"]).yes
    assert not parser().parse_args(words).yes
