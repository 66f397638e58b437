"""Units of systemd, of the system's manager or of the account's own: asked, stopped, started, kept from starting.

Every call has a deadline, and every refusal is one sentence that says what to do.
"""

import asyncio
import contextlib
import getpass
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_DEADLINE = 20.0
"""Real seconds for one call; none of ours waits for a job to end."""
_RELOAD_DEADLINE = 60.0
_GUARD = "zz-ddconsole.conf"
"""Sorted behind other drop-ins, so that none takes the condition back. Under /run: a reboot clears it away."""
_GUARD_TEXT = """# Held back by a benchmark sweep that needs its GPU; `ddconsole debts` says which one.
[Unit]
ConditionPathExists=!/
"""
_SHOWN = (
    "LoadState",
    "ActiveState",
    "SubState",
    "InvocationID",
    "MainPID",
    "Job",
    "Result",
    "ExecMainStatus",
    "Transient",
    "NeedDaemonReload",
    "ControlGroup",
    "FragmentPath",
    "DropInPaths",
    "TriggeredBy",
)
_DEFINING = ("ExecStart", "ExecStartPre", "Environment", "EnvironmentFiles", "WorkingDirectory", "User", "Group")


class UnitProblem(Exception):
    """A call was refused or not answered; the text is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd says about a unit."""

    unit: str
    load: str
    active: str
    sub: str
    invocation: str
    """Another one with every start."""
    main_pid: int
    job: bool
    """Whether a start or stop of it is waiting or under way."""
    result: str
    status: str
    """Exit status of the last main process."""
    transient: bool
    stale: bool
    """Whether its files were changed after they were loaded."""
    control_group: str
    files: tuple[str, ...]
    """Unit file first, then drop-ins."""
    triggered_by: tuple[str, ...]
    """Sockets, timers and paths that start it."""

    @property
    def there(self) -> bool:
        """Whether there is such a unit."""
        return self.load != "not-found"

    @property
    def up(self) -> bool:
        """Whether it runs, or is about to: one that waits for its automatic restart is."""
        return self.active in {"active", "activating", "reloading", "refreshing"}

    @property
    def down(self) -> bool:
        """Whether it has stopped and nothing is under way."""
        return self.active in {"inactive", "failed"} and not self.job


class Systemd:
    """One manager: the system's, or the account's own."""

    def __init__(self, *, user: bool) -> None:
        self.user = user
        self._environment = _environment()
        runtime = self._environment.get("XDG_RUNTIME_DIR", "")
        self._run = Path(runtime, "systemd") if user else Path("/run/systemd")

    @property
    def name(self) -> str:
        """For people."""
        return f"the user manager of {getpass.getuser()}" if self.user else "the system"

    @property
    def may_change(self) -> bool:
        """Whether units can be stopped, and held back by a file, without a password."""
        return self.user or os.geteuid() == 0

    async def look(self, unit: str) -> UnitState:
        """How a unit is; one that is not there has `load` = `not-found`.

        Raises:
            UnitProblem: there is no such manager, or it does not answer.
        """
        shown = await self._show(unit, _SHOWN)
        return UnitState(
            unit=unit,
            load=shown.get("LoadState", ""),
            active=shown.get("ActiveState", ""),
            sub=shown.get("SubState", ""),
            invocation=shown.get("InvocationID", ""),
            main_pid=int(shown.get("MainPID") or 0),
            job=shown.get("Job", "") not in {"", "0"},
            result=shown.get("Result", ""),
            status=shown.get("ExecMainStatus", ""),
            transient=shown.get("Transient") == "yes",
            stale=shown.get("NeedDaemonReload") == "yes",
            control_group=shown.get("ControlGroup", ""),
            files=tuple(filter(None, (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()))),
            triggered_by=tuple(shown.get("TriggeredBy", "").split()),
        )

    async def definition(self, unit: str) -> Mapping[str, str]:
        """Command, environment and account of a unit as text, to be compared; what changes with a start is left out.

        Raises:
            UnitProblem: as `look`.
        """
        shown = await self._show(unit, _DEFINING)
        for name in ("ExecStart", "ExecStartPre"):
            told = "; ".join(re.findall(r"\{ (path=.*?) ; ignore_errors=", shown.get(name, "")))
            shown[name] = _without_backslashes(told)
        for path in re.findall(r"(\S+) \(ignore_errors=\w+\)", shown.get("EnvironmentFiles", "")):
            with contextlib.suppress(OSError):
                shown[f"content of {path}"] = Path(path).read_text(errors="replace")
        return {name: value for name, value in shown.items() if value}

    async def command(self, unit: str) -> tuple[str, ...]:
        """The argv of a service with one command; the text of `systemctl show` would not tell where a word ends.

        Raises:
            UnitProblem: it has none, or several, or cannot be asked.
        """
        place = f"/org/freedesktop/systemd1/unit/{_bus_label(unit)}"
        argv = (*self._manager("busctl"), "--json=short", "get-property", "org.freedesktop.systemd1")
        text = await self._call(unit, "read", (*argv, place, "org.freedesktop.systemd1.Service", "ExecStart"))
        commands = _commands(text)
        if len(commands) != 1:
            raise UnitProblem(f"{unit} has {len(commands)} commands: only one can be written down and started again")
        argv = commands[0]
        # A manager that was reloaded reads a transient unit's command from a file in which it had put backslashes, and
        # keeps them (systemd 252): what runs is the truth.
        plain = tuple(_without_backslashes(word) for word in argv)
        return plain if plain != argv and await self._running_command(unit) == plain else argv

    async def _running_command(self, unit: str) -> tuple[str, ...]:
        """The argv of the unit's main process; empty where there is none."""
        shown = await self._show(unit, ("MainPID",))
        try:
            raw = Path(f"/proc/{int(shown.get('MainPID') or 0)}/cmdline").read_bytes()
        except (OSError, ValueError):
            return ()
        return tuple(word.decode("utf-8", "surrogateescape") for word in raw.split(b"\0")[:-1])

    async def start(self, unit: str) -> None:
        """Begin to start it; `look` tells how that goes. Its count of failed starts begins anew.

        Raises:
            UnitProblem: it was refused.
        """
        with contextlib.suppress(UnitProblem):  # a unit that never failed is not always loaded
            await self._systemctl("reset-failed", unit)
        await self._systemctl("start", unit, "--no-block")

    async def stop(self, unit: str) -> None:
        """Begin to stop it.

        Raises:
            UnitProblem: it was refused.
        """
        await self._systemctl("stop", unit, "--no-block")

    async def forget_failure(self, unit: str) -> None:
        """Let a transient unit that ended as failed go: its name is taken until then."""
        with contextlib.suppress(UnitProblem):
            await self._systemctl("reset-failed", unit)

    async def run_transient(self, unit: str, settings: Sequence[str], command: Sequence[str]) -> None:
        """Make a transient unit and start it.

        Args:
            unit: its name.
            settings: `Name=value` lines, as `transient_settings` reads them.
            command: argv.

        Raises:
            UnitProblem: it was refused; the text has systemd's own words.
        """
        properties = [part for one in settings for part in ("--property", one)]
        quiet = ("--quiet", "--no-block", "--no-ask-password", f"--unit={unit}")
        await self._call(unit, "make", (*self._manager("systemd-run"), *quiet, *properties, "--", *command))

    async def try_transient(self, unit: str, settings: Sequence[str], command: Sequence[str]) -> None:
        """Whether `run_transient` would be taken: the same with a condition that fails, so that nothing is started.

        Raises:
            UnitProblem: it would not.
        """
        stem, _, suffix = unit.rpartition(".")
        await self.run_transient(f"ddconsole-try-{stem}.{suffix}", (*settings, "ConditionPathExists=!/"), command)

    def transient_settings(self, state: UnitState) -> tuple[str, ...]:
        """The `Name=value` lines of a transient unit, its command left out.

        Raises:
            UnitProblem: its file cannot be read.
        """
        settings: list[str] = []
        try:
            for path in (one for one in state.files if one.startswith(str(self._run / "transient"))):
                settings += _settings(Path(path).read_text())
        except (OSError, UnicodeDecodeError) as problem:
            raise UnitProblem(f"the definition of {state.unit} cannot be read: {problem}") from problem
        return tuple(settings)

    def is_guarded(self, unit: str) -> bool:
        """Whether a file holds it back."""
        return self._guard(unit).is_file()

    async def guard(self, unit: str) -> None:
        """Hold it back: whatever starts it from now on finds that a condition does not hold. A running one runs on.

        Raises:
            UnitProblem: the file could not be written or loaded.
        """
        path = self._guard(unit)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_GUARD_TEXT)
        except OSError as problem:
            raise UnitProblem(f"{unit} cannot be held back: {problem.strerror}: {path}") from problem
        await self._reload(unit)

    async def unguard(self, unit: str) -> None:
        """Let it start again.

        Raises:
            UnitProblem: the file could not be removed, or the manager does not answer.
        """
        path = self._guard(unit)
        if not path.exists():
            return
        try:
            path.unlink()
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        except OSError as problem:
            raise UnitProblem(f"{unit} is still held back: {problem.strerror}: remove {path} by hand") from problem
        await self._reload(unit)

    def _guard(self, unit: str) -> Path:
        return self._run / ("user" if self.user else "system") / f"{unit}.d" / _GUARD

    async def _reload(self, unit: str) -> None:
        argv = (*self._manager("systemctl"), "--no-ask-password", "daemon-reload")
        await self._call(unit, "hold back", argv, _RELOAD_DEADLINE)

    async def _systemctl(self, verb: str, unit: str, *options: str) -> None:
        argv = (*self._manager("systemctl"), "--no-ask-password", "--quiet", *options, verb, "--", unit)
        await self._call(unit, verb, argv)

    async def _show(self, unit: str, names: Sequence[str]) -> dict[str, str]:
        argv = (*self._manager("systemctl"), "show", "--no-pager", "-p", ",".join(names), "--", unit)
        text = await self._call(unit, "ask about", argv)
        return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)

    def _manager(self, program: str) -> tuple[str, ...]:
        return (program, "--user") if self.user else (program,)

    async def _call(self, unit: str, verb: str, argv: Sequence[str], deadline: float = _DEADLINE) -> str:
        if shutil.which(argv[0]) is None:
            raise UnitProblem(f"this machine has no {argv[0]}, so it runs no systemd that could {verb} {unit}")
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        try:
            out, complaint = await asyncio.wait_for(process.communicate(), deadline)
        except TimeoutError as problem:
            raise UnitProblem(f"{argv[0]} did not {verb} {unit} within {deadline:.0f} s: look at systemd") from problem
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            raise UnitProblem(self._sentence(unit, verb, complaint.decode(errors="replace")))
        return out.decode(errors="replace")

    def _sentence(self, unit: str, verb: str, complaint: str) -> str:
        if "not been booted with systemd" in complaint or "Failed to connect to bus" in complaint:
            who = self.name if self.user else "systemd"
            return f"{who} does not run on this machine, so nothing can {verb} {unit}"
        if "authentication required" in complaint or "Access denied" in complaint:
            return f"{getpass.getuser()} may not {verb} {unit} of {self.name}: connect as root"
        words = " ".join(complaint.split())[:300] or "no reason was given"
        return f"systemd did not {verb} {unit}: {words}"


def _environment() -> dict[str, str]:
    """Plain output; a service or a detached process has no XDG_RUNTIME_DIR although the user manager runs."""
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    runtime = f"/run/user/{os.geteuid()}"
    if "XDG_RUNTIME_DIR" not in environment and Path(runtime).is_dir():
        environment["XDG_RUNTIME_DIR"] = runtime
    return environment


def _bus_label(unit: str) -> str:
    """A unit's name in a path of the bus."""
    plain = [one if one.isascii() and one.isalnum() else f"_{ord(one):02x}" for one in unit]
    if unit[:1].isdigit():
        plain[0] = f"_{ord(unit[0]):02x}"
    return "".join(plain)


def _commands(text: str) -> list[tuple[str, ...]]:
    """The argv's of an `a(sasbttttuii)` as busctl prints it."""
    try:
        return [tuple(map(str, one[1])) for one in json.loads(text)["data"]]
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        raise UnitProblem(f"busctl answered {text[:120]!r} instead of a command") from problem


def _without_backslashes(text: str) -> str:
    """A command without those that systemd puts before $ and ; when it writes a unit file."""
    return text.replace("\\$", "$").replace("\\;", ";")


def _settings(text: str) -> list[str]:
    """The settings of a unit file that systemd wrote, as systemd-run takes them: % stands doubled in the file."""
    settings = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not equals or line.startswith(("#", ";", "[")) or name == "ExecStart":
            continue
        value = value.replace("%%", "%")
        if name.startswith("Exec"):
            value = _without_backslashes(value)
        settings.append(f"{name}={value}")
    return settings


_CGROUP_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")


def processes_of(control_group: str, roots: tuple[str, ...] = _CGROUP_ROOTS) -> set[int]:
    """Pids in a control group and below, whichever version of cgroups systemd uses here."""
    found: set[int] = set()
    if not control_group or control_group == "/":
        return found
    for root in roots:
        # os.walk goes on where a group is removed meanwhile; Path.rglob raises there.
        for folder, _, _ in os.walk(root + control_group):
            with contextlib.suppress(OSError, ValueError):
                found |= {int(line) for line in Path(folder, "cgroup.procs").read_text().split()}
    return found
