"""Dialogs answer at once in tests, and nothing is written outside the test's folder."""

from pathlib import Path

import pytest

from screens import confirm


@pytest.fixture(autouse=True)
def _quick_dialogs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(confirm, "KEYS_IGNORED_FOR", 0.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TMUX", raising=False)
