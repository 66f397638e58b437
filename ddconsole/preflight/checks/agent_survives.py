"""The agent outlives the login that started it, and is there again after a reboot."""

import re

from ddconsole.core.survival import (
    BOOTED_BY_SYSTEMD,
    LINGER_FOLDER,
    LOGIND_QUESTION,
    HostManagers,
    ManagerKind,
    cgroup_of,
    kills_at_logout,
    manager_question,
    starts_after_reboot,
    survives_logout,
)
from ddconsole.preflight.check import Check, Tier, Verdict, passed, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Machine

_DEADLINE = 4.0
_EXPECTED = "no logout ends the agent, and a reboot does not end an unfinished run unnoticed"


async def _run(facts: Facts) -> Verdict:
    machine = facts.machine
    host = await _managers(machine)
    if host is None:
        return unknown("`id` does not say who this is", "run `id` on the host")
    cgroup = cgroup_of(await machine.read_text("/proc/self/cgroup"))
    logout, reboot = survives_logout(host, cgroup), starts_after_reboot(host)
    observed = f"survives a logout: {logout.text}; starts again after a reboot: {reboot.text}"
    evidence = [
        f"PID 1: {host.init}",
        f"user: {host.user}",
        f"cgroup of the agent: {cgroup}",
        f"KillUserProcesses for {host.user}: {_word(host.kill_user_processes)}",
        f"Linger={_word(host.linger)}",
        f"{host.kind} manager answers: {_word(host.manager)}",
    ]
    if logout.survives is None:
        return unknown(observed, logout.remedy, evidence)
    if not logout.survives:
        return warned(observed, _EXPECTED, logout.remedy, evidence)
    # Without systemd nothing can be done about a reboot, so it is said and no warning.
    if not reboot.survives and host.systemd:
        return warned(observed, _EXPECTED, reboot.remedy, evidence)
    return passed(observed, _EXPECTED, evidence)


async def _managers(machine: Machine) -> HostManagers | None:
    told = re.match(r"uid=(\d+)(?:\(([^)]*)\))?", await _output(machine, ("id",)) or "")
    if told is None:
        return None
    uid, user = int(told.group(1)), told.group(2) or told.group(1)
    kind: ManagerKind = "system" if uid == 0 else "user"
    systemd = await machine.status(BOOTED_BY_SYSTEMD) is not None
    runtime = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    return HostManagers(
        user=user,
        uid=uid,
        init=(await machine.read_text("/proc/1/comm")).strip(),
        systemd=systemd,
        manager=systemd and await _output(machine, manager_question(kind), runtime) is not None,
        linger=await machine.status(f"{LINGER_FOLDER}/{user}") is not None,
        kill_user_processes=kills_at_logout(await _output(machine, LOGIND_QUESTION), user) if systemd else None,
    )


async def _output(machine: Machine, argv: tuple[str, ...], environment: dict[str, str] | None = None) -> str | None:
    try:
        ran = await machine.run(argv, _DEADLINE, environment)
    except OSError:
        return None
    return ran.out if ran.exit_code == 0 else None


def _word(value: bool | None) -> str:
    return "not known" if value is None else "yes" if value else "no"


CHECK = Check(
    "agent.survives",
    "the agent outlives a logout, and is there again after a reboot",
    _run,
    blocks=("sweep",),
    tier=Tier.STANDARD,
)
