"""Whether the agent survives, in words, for every kind of host. The real thing: tests/agent/test_surviving.py."""

import pytest
from one_check import one

from ddconsole.core.survival import HostManagers, choose, kills_at_logout
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedMachine

LINGER = "/var/lib/systemd/linger/bench"
IN_SESSION = b"0::/user.slice/user-1000.slice/session-3.scope\n"
IN_SYSTEM_UNIT = b"1:name=systemd:/\n0::/system.slice/ddconsole-agent-1.service\n"
OFF = "KillUserProcesses=no\nKillOnlyUsers=\nKillExcludeUsers=root\n"
ENABLE = "loginctl enable-linger bench"


@pytest.fixture(autouse=True)
def in_a_unit(machine: RecordedMachine) -> None:
    machine.files["/proc/self/cgroup"] = b"0::/user.slice/user-1000.slice/user@1000.service/ddconsole-agent-x.service\n"


def lingering(machine: RecordedMachine) -> None:
    assert LINGER in machine.files


def unit_without_linger(machine: RecordedMachine) -> None:
    del machine.files[LINGER]


def killed_with_its_session(machine: RecordedMachine) -> None:
    machine.files["/proc/self/cgroup"] = IN_SESSION


def session_that_is_left_alone(machine: RecordedMachine) -> None:
    killed_with_its_session(machine)
    unit_without_linger(machine)
    machine.programs["loginctl"] = Ran(0, OFF, "", 0.0)


def root(machine: RecordedMachine) -> None:
    unit_without_linger(machine)
    machine.programs["id"] = Ran(0, "uid=0(root) gid=0(root)\n", "", 0.0)
    machine.files["/proc/self/cgroup"] = IN_SYSTEM_UNIT


def no_systemd(machine: RecordedMachine) -> None:
    for path in (LINGER, "/run/systemd/system/.keep"):
        del machine.files[path]
    machine.files["/proc/1/comm"] = b"tini\n"
    machine.files["/proc/self/cgroup"] = b"0::/\n"


def no_user_manager(machine: RecordedMachine) -> None:
    session_that_is_left_alone(machine)
    machine.programs["systemctl"] = Ran(1, "", "Failed to connect to bus", 0.0)


@pytest.mark.parametrize(
    ("change", "outcome", "logout", "reboot", "remedy"),
    [
        (lingering, Outcome.PASS, "yes: it runs in ddconsole-agent-x.service", "yes: by the user manager", ""),
        (unit_without_linger, Outcome.WARN, "no: it runs in ddconsole-agent-x.service", "no: linger is off", ENABLE),
        (killed_with_its_session, Outcome.WARN, "no: it runs in session-3.scope", "yes", ENABLE),
        (session_that_is_left_alone, Outcome.WARN, "yes: it runs in session-3.scope", "no: linger is off", ENABLE),
        (root, Outcome.PASS, "yes: it runs in ddconsole-agent-1.service", "yes: by the system manager", ""),
        (no_systemd, Outcome.PASS, "yes: PID 1 is tini", "no: PID 1 is tini", ""),
        (no_user_manager, Outcome.WARN, "yes", "no: the user manager does not answer", "connect again"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
async def test_the_verdict_in_words(
    change: object, outcome: Outcome, logout: str, reboot: str, remedy: str, facts: Facts, machine: RecordedMachine
) -> None:
    assert callable(change)
    change(machine)

    finding = await one(facts, "agent.survives")

    assert finding.outcome is outcome
    assert f"survives a logout: {logout}" in finding.observed
    assert f"starts again after a reboot: {reboot}" in finding.observed
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("told", "killed"),
    [
        ("KillUserProcesses=yes\nKillOnlyUsers=\nKillExcludeUsers=root", True),
        ("KillUserProcesses=no\nKillOnlyUsers=\nKillExcludeUsers=", False),
        ("KillUserProcesses=yes\nKillOnlyUsers=a b\nKillExcludeUsers=", False),
        ("KillUserProcesses=yes\nKillOnlyUsers=a bench\nKillExcludeUsers=", True),
        ("KillUserProcesses=yes\nKillOnlyUsers=\nKillExcludeUsers=root bench", False),
        ("", None),
        (None, None),
    ],
)
def test_whom_logind_kills(told: str | None, killed: bool | None) -> None:
    assert kills_at_logout(told, "bench") is killed


def managers(**changes: object) -> HostManagers:
    given: dict[str, object] = {
        "user": "bench", "uid": 1000, "init": "systemd", "systemd": True, "manager": True, "linger": True,
        "kill_user_processes": True,
    }  # fmt: skip
    return HostManagers(**{**given, **changes})  # type: ignore[arg-type]  # its fields by name


@pytest.mark.parametrize(
    ("host", "manager", "reason"),
    [
        (managers(), "user", "linger is on"),
        (managers(linger=False), "user", "ends what a session leaves"),
        (managers(linger=False, kill_user_processes=False), "", "would end at the last logout"),
        (managers(uid=0, user="root", linger=False), "system", "for root"),
        (managers(manager=False), "", "the user manager of systemd does not answer"),
        (managers(systemd=False, init="tini"), "", "PID 1 is tini"),
    ],
)
def test_where_an_agent_is_started(host: HostManagers, manager: str, reason: str) -> None:
    choice = choose(host)

    assert choice.manager == manager
    assert reason in choice.reason
