"""Units of a systemd manager, by its own programs: start one, ask about it, end it, forget it."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddconsole.core.survival import (
    BOOTED_BY_SYSTEMD,
    LINGER_FOLDER,
    LOGIND_QUESTION,
    HostManagers,
    ManagerKind,
    kills_at_logout,
    manager_question,
)

_DEADLINE = 20.0
"""Real seconds for one answer of a manager."""
_UNKNOWN_PROPERTY = re.compile(r"Unknown assignment: (\w+)=|Cannot set property (\w+)|Invalid (\w+) setting")


class ManagerProblem(Exception):
    """A manager refused or did not answer; the text is its own."""


@dataclass(frozen=True, slots=True)
class Manager:
    """One systemd manager."""

    kind: ManagerKind

    def start(self, unit: str, argv: Sequence[str], properties: Mapping[str, str], *, collect: bool) -> tuple[str, ...]:
        """Start a transient service; returns when its program is executed.

        Args:
            unit: its name, in use by no loaded unit.
            argv: the program, absolute.
            properties: of the unit. Those that this systemd does not know are left out.
            collect: forget the unit at its end even where it failed.

        Returns:
            The properties that were left out.

        Raises:
            ManagerProblem: it was not started.
        """
        kept = {"Type": "exec", **properties}
        dropped: list[str] = []
        while True:
            options = [f"--property={name}={value}" for name, value in kept.items()]
            more = ("--collect",) if collect else ()
            # `--` ends the options; `$` would be expanded by the manager, and `%` is not in transient units.
            words = [word.replace("$", "$$") for word in argv]
            done = self._run("systemd-run", "--quiet", f"--unit={unit}", *more, *options, "--", *words)
            if done.returncode == 0:
                return tuple(dropped)
            unknown = _UNKNOWN_PROPERTY.search(done.stderr)
            name = next(filter(None, unknown.groups()), "") if unknown else ""
            if name not in kept:
                raise ManagerProblem(_words(done))
            del kept[name]
            dropped.append(name)

    def show(self, unit: str, *names: str) -> Mapping[str, str]:
        """Properties of a unit.

        Raises:
            ManagerProblem: the manager does not answer.
        """
        done = self._run("systemctl", "show", "--no-pager", "-p", ",".join(names), "--", unit)
        if done.returncode != 0:
            raise ManagerProblem(_words(done))
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        return {name: value for name, _, value in pairs}

    def ask(self, *arguments: str) -> str:
        """`systemctl` with any arguments; what it printed.

        Raises:
            ManagerProblem: it failed.
        """
        done = self._run("systemctl", *arguments)
        if done.returncode != 0:
            raise ManagerProblem(_words(done))
        return done.stdout

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                [program, f"--{self.kind}", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DEADLINE,
                env=_environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise ManagerProblem(f"{program}: {problem}") from problem


def host_managers() -> HostManagers:
    """What this host says, for the user that this process runs as."""
    # Only here: who starts in a container without systemd does not pay for it.
    import pwd  # noqa: PLC0415

    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    systemd = Path(BOOTED_BY_SYSTEMD).is_dir()
    kind: ManagerKind = "system" if uid == 0 else "user"
    return HostManagers(
        user=user,
        uid=uid,
        init=Path("/proc/1/comm").read_text().strip(),
        systemd=systemd,
        manager=systemd and _output(manager_question(kind)) is not None,
        linger=(Path(LINGER_FOLDER) / user).exists(),
        kill_user_processes=kills_at_logout(_output(LOGIND_QUESTION) if systemd else None, user),
    )


def _output(argv: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE, env=_environment(), check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _environment() -> Mapping[str, str]:
    """Ours, with the place of the user manager's socket: a login without PAM does not name it."""
    runtime = f"/run/user/{os.geteuid()}"
    return {"XDG_RUNTIME_DIR": runtime, **os.environ} if Path(runtime).is_dir() else dict(os.environ)


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(done.stderr.split())[-400:] or f"{done.args[0]} ended with status {done.returncode}"
