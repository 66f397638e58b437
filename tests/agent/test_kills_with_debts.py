"""Kill -9 at each write of the journal of a sweep that has displaced a unit: nothing is lost, and the unit is back."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from box_body import BoxBody
from displaced_unit import command, free_port, install_server, order, told_by, up, up_transient
from failing_disk import WHERE, Rule, counted, environment, fired
from mortal_agent import MortalAgent
from nothing_lost import assert_nothing_lost
from systemd_box import SystemdBox, systemd_box
from waiting import until

from ddconsole.core.events import DebtSettled, DebtTaken
from ddconsole.core.journal_line import read_lines
from ddconsole.core.wire import Submission
from ddconsole.runner.run_directory import RunDirectory

pytestmark = [pytest.mark.systemd, pytest.mark.ssh, pytest.mark.engine, pytest.mark.timeout(300)]

KINDS = ("plain", "transient")
SECRET = "sk-1234567890abcdef"
JOURNAL_WRITES = 18
"""Of an undisturbed sweep of one launch, at least."""


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    with systemd_box() as one:
        install_server(one)
        yield one


@pytest.fixture
def folder(box: SystemdBox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agent lives: the same inside the box and outside."""
    path = box.folder / tmp_path_factory.mktemp("k").name
    path.mkdir(mode=0o700)
    return path


def have_unit(box: SystemdBox, kind: str, unit: str, port: int) -> dict[str, Any]:
    """A unit that is up, and what it says about itself.

    A plain one comes back by itself whenever it ends. A transient one vanishes when it stops, and its environment
    holds a secret, which the journal may not know: only debts.json can bring it back.
    """
    if kind == "plain":
        up(box, unit, f"[Service]\nExecStart={command(port)}\nEnvironment=A=1\nRestart=always\n", port)
    else:
        up_transient(box, unit, [f"--setenv=API_KEY={SECRET}", "--property=Restart=always"], port)
    return told_by(port)


async def survive(box: SystemdBox, folder: Path, kind: str, rule: Rule, plan: Submission, *, repeated: int = 1) -> None:
    """A sweep whose agent the rule kills: what was acknowledged is there, nothing is there twice, nothing is owed."""
    Path(rule.folder).mkdir()
    unit, port = plan.displace[0]["unit"], free_port()
    before = have_unit(box, kind, unit, port)
    agent = MortalAgent(folder, BoxBody(box, environment(rule)))
    try:
        run = await agent.sweep(plan, 120)
        state = assert_nothing_lost(run, repeated=repeated)
        assert state.outcome == "complete"
        assert run.journal.read_bytes() == b"".join(agent.sent)
        assert agent.starts == 1 + len(fired(rule))
        assert told_by(port) == before
        assert SECRET.encode() not in run.journal.read_bytes()
        assert_all_is_settled(box, run, unit)
    finally:
        await agent.end()
        box.run("systemctl", "stop", unit, check=False)
    assert agent.processes() == []
    # A question to the engine, such as for its version, that a killed agent had begun may take a moment to end.
    await until(lambda: not ours(box), 20, "for all of the sweep's processes to end")


def ours(box: SystemdBox) -> list[str]:
    """Servers and runners in the box."""
    lines = box.run("ps", "-eo", "args").stdout.splitlines()
    return [line for line in lines if "tree_server" in line or "ddconsole.runner" in line]


def assert_all_is_settled(box: SystemdBox, run: RunDirectory, unit: str) -> None:
    """Each debt that was taken was settled before the next one was taken, and nothing holds the unit back any more."""
    entries, _ = read_lines(run.journal.read_bytes())
    debts = [type(one.event) for one in entries if isinstance(one.event, DebtTaken | DebtSettled)]
    assert debts
    assert debts == [DebtTaken, DebtSettled] * (len(debts) // 2)
    assert json.loads(run.debts.read_bytes()) == {"debts": {}}
    assert box.show(unit, "ActiveState") == "active"
    assert box.show(unit, "DropInPaths") == ""


def name_of(kind: str, rule: Rule) -> str:
    return f"{kind}-{rule.containing or 'write'}-{rule.where or 'chain'}-{rule.number}".lower()


def one_launch(kind: str, rule: Rule) -> Submission:
    """Two cells on the GPU where the unit is; it is put back when they are done."""
    name = name_of(kind, rule)
    return order(f"{name}.service", name, number=2)


def two_launches(kind: str, rule: Rule) -> Submission:
    """The unit is put back between the two."""
    name = name_of(kind, rule)
    return order(f"{name}.service", name, number=2, then=1)


def journal_rule(folder: Path, where: str, number: int = 1, containing: str = "") -> Rule:
    return Rule(str(folder / "rule"), "journal.jsonl", where, number, containing=containing)


@pytest.mark.parametrize(
    ("kind", "where", "event"), [("transient", "torn", "DebtTaken"), ("plain", "written", "DebtSettled")]
)
async def test_an_agent_killed_while_it_writes_of_a_debt(
    kind: str, where: str, event: str, box: SystemdBox, folder: Path
) -> None:
    rule = journal_rule(folder, where, containing=event)
    await survive(box, folder, kind, rule, one_launch(kind, rule))
    assert fired(rule) == [where]


@pytest.mark.trial
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", ["DebtTaken", "DebtSettled"])
@pytest.mark.parametrize("where", WHERE)
async def test_every_write_of_a_debt(kind: str, where: str, event: str, box: SystemdBox, folder: Path) -> None:
    rule = journal_rule(folder, where, containing=event)
    await survive(box, folder, kind, rule, two_launches(kind, rule))
    assert fired(rule) == [where]


@pytest.mark.trial
@pytest.mark.parametrize("number", range(1, JOURNAL_WRITES + 4))
@pytest.mark.parametrize("where", WHERE)
async def test_every_write_of_the_journal_while_a_unit_is_owed(
    where: str, number: int, box: SystemdBox, folder: Path
) -> None:
    kind = KINDS[(number + WHERE.index(where)) % len(KINDS)]
    rule = journal_rule(folder, where, number)
    await survive(box, folder, kind, rule, one_launch(kind, rule))
    assert fired(rule) == [where] if number <= JOURNAL_WRITES else counted(rule) >= JOURNAL_WRITES


@pytest.mark.trial
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", [3, 5])
async def test_an_agent_killed_again_and_again(kind: str, stride: int, box: SystemdBox, folder: Path) -> None:
    rule = replace(journal_rule(folder, "", stride), modes=WHERE, stride=stride)
    await survive(box, folder, kind, rule, two_launches(kind, rule), repeated=3)
    assert set(fired(rule)) <= set(WHERE)
    assert len(fired(rule)) >= 3
