"""Whether an agent outlives the login that started it, and a reboot: judged from what the host's systemd says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ManagerKind = Literal["", "user", "system"]
"""Which systemd manager holds a process of ours; empty: none, it is in a session of its own."""

LINGER_FOLDER = "/var/lib/systemd/linger"
"""Holds one file for each user whose manager runs without a login."""
BOOTED_BY_SYSTEMD = "/run/systemd/system"
LOGIND_QUESTION = (
    "loginctl",
    "show-session",
    "-p",
    "KillUserProcesses",
    "-p",
    "KillOnlyUsers",
    "-p",
    "KillExcludeUsers",
)
"""Without a session's name: the properties of logind itself."""


def manager_question(kind: ManagerKind) -> tuple[str, ...]:
    """A command that succeeds where a manager answers this login."""
    return ("systemctl", f"--{kind}", "show", "-p", "Version")


@dataclass(frozen=True, slots=True)
class HostManagers:
    """What a host says of systemd, for one user."""

    user: str
    uid: int
    init: str
    """The name of PID 1."""
    systemd: bool
    """Whether the host was booted with systemd."""
    manager: bool
    """Whether the manager that would hold the agent answers: the system's for root, else the user's."""
    linger: bool
    kill_user_processes: bool | None
    """Whether logind ends what this user's sessions leave; None: it does not say."""

    @property
    def kind(self) -> ManagerKind:
        """The manager that this user may use."""
        return "system" if self.uid == 0 else "user"


def kills_at_logout(answer: str | None, user: str) -> bool | None:
    """What logind's properties mean for one user; None where they say nothing."""
    pairs = (line.partition("=") for line in (answer or "").splitlines())
    told: Mapping[str, str] = {name: value for name, _, value in pairs}
    if "KillUserProcesses" not in told:
        return None
    only = told.get("KillOnlyUsers", "").split()
    if told["KillUserProcesses"] != "yes" or user in told.get("KillExcludeUsers", "").split():
        return False
    return not only or user in only


@dataclass(frozen=True, slots=True)
class Choice:
    """Where an agent is started."""

    manager: ManagerKind
    reason: str


def choose(host: HostManagers) -> Choice:
    """Where an agent lives longest.

    A user's manager ends at the user's last logout unless linger is on: then a session of its own lives longer, unless
    logind ends those too.
    """
    if not host.systemd:
        return Choice("", f"PID 1 is {host.init}, not systemd")
    if not host.manager:
        return Choice("", f"the {host.kind} manager of systemd does not answer")
    if host.kind == "system":
        return Choice("system", "the system manager is there for root")
    if host.linger:
        return Choice("user", f"linger is on for {host.user}")
    if host.kill_user_processes:
        return Choice("user", f"linger is off for {host.user}, and logind ends what a session leaves")
    return Choice("", f"linger is off for {host.user}: the user manager would end at the last logout")


@dataclass(frozen=True, slots=True)
class Survival:
    """A verdict in words."""

    survives: bool | None
    """None: it cannot be told."""
    text: str
    remedy: str = ""


def cgroup_of(text: str) -> str:
    """The path of a process in systemd's tree, out of /proc/PID/cgroup.

    The hierarchy is the unified one or `name=systemd`; where both are there, one of them may be unused and say `/`.
    """
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    paths = [path for number, controllers, path in lines if number == "0" or controllers == "name=systemd"]
    return max(paths, key=len, default="")


def survives_logout(host: HostManagers, cgroup: str) -> Survival:
    """Whether a process in `cgroup` outlives the logout of the session that started it."""
    enable = f"loginctl enable-linger {host.user}"
    if not host.systemd:
        return Survival(True, f"yes: PID 1 is {host.init}, and nothing ends processes at a logout")
    unit = next((part for part in reversed(cgroup.split("/")) if re.search(r"\.(service|scope)$", part)), "")
    if f"/user@{host.uid}.service/" in cgroup:
        if host.linger:
            return Survival(True, f"yes: it runs in {unit} of the user manager, and linger is on for {host.user}")
        text = f"no: it runs in {unit} of the user manager, which ends at {host.user}'s last logout: linger is off"
        return Survival(False, text, enable)
    if re.fullmatch(r"session-[^/]+\.scope", unit):
        again = f"{enable}, then let this agent go (it leaves when it is idle) and connect again"
        if host.kill_user_processes is None:
            return Survival(None, f"not known: it runs in {unit}, and logind does not say KillUserProcesses", again)
        if host.kill_user_processes:
            return Survival(False, f"no: it runs in {unit}, and logind has KillUserProcesses=yes", again)
        return Survival(True, f"yes: it runs in {unit}, and logind has KillUserProcesses=no")
    if unit:
        return Survival(True, f"yes: it runs in {unit}, which no logout ends")
    return Survival(True, "yes: it belongs to no session")


def starts_after_reboot(host: HostManagers) -> Survival:
    """Whether systemd can start the agent of an unfinished run after a reboot."""
    if not host.systemd:
        return Survival(False, f"no: PID 1 is {host.init}, not systemd", "connect again after a reboot")
    if not host.manager:
        return Survival(False, f"no: the {host.kind} manager does not answer", "connect again after a reboot")
    if host.kind == "user" and not host.linger:
        text = f"no: linger is off for {host.user}, so the user manager starts with the next login only"
        return Survival(False, text, f"loginctl enable-linger {host.user}")
    return Survival(True, f"yes: by the {host.kind} manager, while a run is unfinished")
