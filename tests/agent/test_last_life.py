"""An agent that a logout ended is explained by the next one; a clean end and a restart by its keeper are not."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ddconsole.agent import last_life
from ddconsole.agent.last_life import NAME, LastLife, Life
from ddconsole.core.survival import HostManagers

LIFE = Life("boot", 1, survives=False, text="no: it runs in session-3.scope, and logind kills", remedy="loginctl x")


def explained(state: Path, life: Life, boot: str = "boot") -> str:
    (state / NAME).write_text(json.dumps(asdict(life)))
    return LastLife(state, boot).explanation()


def test_who_does_not_survive_a_logout_and_ended_without_a_word_is_explained(tmp_path: Path) -> None:
    text = explained(tmp_path, LIFE)
    assert text.startswith("the agent was ended after ")
    assert text.endswith(", as it is at a logout (it runs in session-3.scope, and logind kills): loginctl x")


@pytest.mark.parametrize(
    ("life", "boot"),
    [(LIFE, "another boot"), (replace(LIFE, survives=True), "boot"), (replace(LIFE, survives=None), "boot")],
)
def test_a_reboot_and_an_agent_that_survives_are_no_logout(tmp_path: Path, life: Life, boot: str) -> None:
    assert explained(tmp_path, life, boot) == ""


def test_a_restart_by_the_keeper_is_no_logout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getppid", lambda: 4711)
    assert explained(tmp_path, replace(LIFE, keeper=4711)) == ""
    assert explained(tmp_path, LIFE) != ""


@pytest.mark.parametrize("damage", ["", "{", '{"boot": "boot"}', "[]"])
def test_a_note_that_cannot_be_read_explains_nothing(tmp_path: Path, damage: str) -> None:
    (tmp_path / NAME).write_text(damage)
    assert LastLife(tmp_path, "boot").explanation() == ""
    (tmp_path / NAME).unlink()
    assert LastLife(tmp_path, "boot").explanation() == ""


def test_an_agent_notes_what_it_knows_of_itself_and_takes_the_note_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostManagers("op", 1000, "init", systemd=False, manager=False, linger=False, kill_user_processes=None)
    monkeypatch.setattr(last_life, "host_managers", lambda: host)
    life = LastLife(tmp_path, "boot")
    life.begin()
    life.touch()
    kept = json.loads((tmp_path / NAME).read_text())
    assert (kept["boot"], kept["survives"], kept["text"][:4]) == ("boot", True, "yes:")
    life.end()
    assert not (tmp_path / NAME).exists()
