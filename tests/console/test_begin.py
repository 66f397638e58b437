"""Beginning a run: what can be refused at once is refused before the host is asked."""

from pathlib import Path

import pytest

from ddconsole import cli
from ddconsole.core.plan_values import ID_RULE


def test_a_run_that_cannot_be_called_so_is_refused_before_the_host_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    arguments = ["run", "ct200-ddtree", "--host", "no-such-host.invalid", "--headless", "--name"]
    assert cli.main([*arguments, "Night run"]) == 2
    said = capsys.readouterr().err
    assert said == f'ddconsole: run id: "Night run" is not a name; allowed: {ID_RULE}\n'
