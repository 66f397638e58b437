"""Sleep and a clock that is set, while a cell is measured."""

import json
import time
from pathlib import Path

import pytest

from ddconsole.core.clock import SystemClock
from ddconsole.runner.cell_time import CellTime


def test_sleep_voids_and_is_no_clock_that_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "boot.json"
    facts.write_text("{}")
    monkeypatch.setenv("DDCONSOLE_BOOT_FACTS", str(facts))
    passing = CellTime(SystemClock())
    assert passing.void() is None
    facts.write_text(json.dumps({"suspended": 30.0}))
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 30.0)
    cause = passing.void()
    assert cause is not None
    assert "suspended for 30 s" in cause.text
    assert passing.flags() == ()


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_a_clock_that_was_set_is_a_flag(by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    passing = CellTime(SystemClock())
    assert passing.flags() == ()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + by)
    assert passing.void() is None
    (flag,) = passing.flags()
    assert f"set by {by:+.0f} s" in flag
