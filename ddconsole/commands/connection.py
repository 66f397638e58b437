"""Reaching an agent for one verb, and naming runs and cells as people do."""

import fnmatch
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ddconsole.commands.asking import prompts_of_terminal
from ddconsole.commands.host_choices import HostChoice, host_choice
from ddconsole.commands.places import runs_folder, state_home
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import decode_line, read_lines
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import cell_label
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.connect import connect
from ddconsole.link.handshake import version_note
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.rehearsal.state import REHEARSAL_VARIABLE


class UsageProblem(Exception):
    """What was asked for cannot be; the text says what is wrong and what to do."""


def fail(problem: Exception) -> int:
    """Say what is wrong in one line; the exit status."""
    if isinstance(problem, LinkLost):
        # A console asks again by itself, and says so; a verb asks once.
        advice = "what was asked may or may not have been done; a sweep there goes on; try again"
        problem = UsageProblem(f"{problem.text} → {advice}")
    print(f"ddconsole: {problem}", file=sys.stderr)
    return 2


@asynccontextmanager
async def agent_of(
    host: str, *, rehearsal: Mapping[str, str] | None = None, choice: HostChoice | None = None, say: bool = False
) -> AsyncIterator[HttpAgentClient]:
    """A client of a host's agent, which is started if need be.

    Args:
        host: `local`, an ssh alias, or user@host:port.
        rehearsal: the environment of a rehearsal: it has an agent of its own, with its own clock, host and faults.
        choice: what the plan says about the host's agent; what an earlier one said where nothing is said.
        say: name the stages on standard error while they take their time.
    """
    state = state_home() / "local" if rehearsal is None else rehearsal_agent(rehearsal)
    local = host == "local"
    chosen = HostChoice() if local else host_choice(host, choice or HostChoice())
    client = await connect(
        host,
        state_directory=str(state) if local else chosen.state,
        runs=runs_folder() if local else None,
        pythons=(chosen.python, chosen.serving_python),
        environment=rehearsal,
        on_stage=(lambda stage: print(f"{host}: {stage.value} …", file=sys.stderr)) if say and not local else None,
        prompts=None if local else prompts_of_terminal(),
    )
    try:
        hello = await client.hello()
        for text in filter(None, (version_note(hello), *hello.problems)):
            print(f"{host}: {text}", file=sys.stderr)
        yield client
    finally:
        await client.close()


def say_what_ssh_leaves_out(host: str) -> None:
    """Name, on standard error, the options of the ssh configuration that have no effect here."""
    if host == "local":
        return
    from ddconsole.link.host_spec import parse_host  # noqa: PLC0415  # only for a host over SSH: it costs an import
    from ddconsole.link.ssh_config import not_honoured  # noqa: PLC0415
    from ddconsole.link.ssh_settings import SshSettings  # noqa: PLC0415

    # A configuration that cannot be read is told by the connection, which needs it.
    with suppress(ValueError, OSError):
        for text in not_honoured(parse_host(host), SshSettings()):
            print(f"note: {host}: {text}", file=sys.stderr)


def run_folders() -> list[Path]:
    """Folders of this machine's runs and mirrors, newest first."""
    folder = runs_folder()
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if (path / "journal.jsonl").is_file()]
    return sorted(found, key=lambda path: (path / "journal.jsonl").stat().st_mtime, reverse=True)


def find_run(name: str | None) -> Path | None:
    """The folder of a run by its id or an unambiguous beginning of it; the newest with a journal without a name.

    Raises:
        UsageProblem: several runs begin like that.
    """
    folders = run_folders()
    if name is None:
        return next(filter(_has_a_beginning, folders), None)
    exact = [path for path in folders if path.name == name]
    if exact:
        return exact[0]
    matching = [path for path in folders if path.name.startswith(name)]
    if len(matching) > 1:
        raise UsageProblem(f"run {name!r} could be {', '.join(path.name for path in matching[:5])}; write more of it")
    return matching[0] if matching else None


def require_run(name: str | None) -> Path:
    """As `find_run`, but there must be one.

    Raises:
        UsageProblem: there is none.
    """
    found = find_run(name)
    if found is None:
        what = f"there is no run {name!r} here" if name else "there is no run here yet"
        raise UsageProblem(f"{what}; ddconsole runs lists them, ddconsole demo makes one")
    return found


def run_folder(name: str) -> Path:
    """A run by the path of its folder, by its id, or by the beginning of its id.

    Raises:
        UsageProblem: there is none, or several begin like that.
    """
    path, told = Path(name).expanduser(), name
    if (path / "journal.jsonl").is_file():
        return path
    if "/" not in name and name not in (".", ".."):
        found = find_run(name)
        if found is not None:
            return found
        path = next((one for one in (path, runs_folder() / name) if one.is_dir()), path)
        if not path.is_dir():
            return require_run(name)
        told = str(path)
    what = "has no journal.jsonl in it" if path.is_dir() else "is no folder"
    raise UsageProblem(f"{told} {what}; name a run's folder, such as logs/<run>, or a run as ddconsole runs lists")


def _has_a_beginning(folder: Path) -> bool:
    """Whether the first line of a run's journal is whole."""
    try:
        with (folder / "journal.jsonl").open("rb") as journal:
            decode_line(journal.readline().removesuffix(b"\n"))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def state_on_disk(folder: Path) -> RunState:
    """What a run's journal on this machine says; where it is damaged further down, that goes to standard error.

    Raises:
        UsageProblem: it cannot be read, or says nothing.
    """
    state, trouble = read_journal(folder)
    if state.created is None:
        raise UsageProblem(f"{folder.name}: {trouble}: nothing is known of this run; what it measured lies in {folder}")
    if trouble:
        print(f"ddconsole: {folder.name}: {trouble}; what stands before it is shown", file=sys.stderr)
    return state


def read_journal(folder: Path) -> tuple[RunState, str]:
    """What a run's journal on this machine says, and what is wrong with it: `journal damaged at line 12`, or nothing.

    A line that was being written when its writer ended is not wrong, unless the journal says nothing without it: then
    the state has no `created`.

    Raises:
        UsageProblem: it cannot be read.
    """
    try:
        entries, damage = read_lines((folder / "journal.jsonl").read_bytes())
    except OSError as problem:
        raise UsageProblem(f"{folder}: {problem.strerror or problem}") from problem
    state = fold(entries)
    if damage is not None and (state.created is None or not damage.torn_tail):
        return state, f"journal damaged at line {damage.line}"
    return state, "" if state.created else "journal empty"


def rehearsal_agent(environment: Mapping[str, str]) -> Path:
    """Where the agent of a rehearsal keeps its things: with its simulated host, so no other rehearsal meets it."""
    return Path(environment[REHEARSAL_VARIABLE]) / "agent"


def rehearsal_of(folder: Path) -> Mapping[str, str] | None:
    """The environment of a rehearsed run, as it was begun; None for a real one."""
    try:
        data = json.loads((folder / "rehearsal.json").read_bytes())
    except (OSError, ValueError):
        return None
    return {str(name): str(value) for name, value in data.items()}


def host_of(folder: Path, state: RunState) -> str:
    """Where a run was begun."""
    return state.created.host if state.created else "local"


def matching_cells(state: RunState, patterns: Sequence[str]) -> tuple[str, ...]:
    """Ids of the cells that ids or label patterns name, in the table's order.

    Raises:
        UsageProblem: a pattern names no cell.
    """
    labels = {name: cell_label(row.cell, state.deployments[row.cell.deployment]) for name, row in state.cells.items()}
    chosen: set[str] = set()
    for pattern in patterns:
        found = {name for name in labels if name == pattern} or {
            name for name, label in labels.items() if fnmatch.fnmatchcase(label, pattern)
        }
        if not found:
            example = next(iter(labels.values()), "")
            raise UsageProblem(f"no cell is called {pattern!r}; a label looks like {example!r}")
        chosen |= found
    return tuple(name for name in state.cells if name in chosen)


def printed(value: Any) -> None:
    """Print JSON."""
    print(json.dumps(value, ensure_ascii=False))


EXPECTED = (UsageProblem, AgentError, OSError)
"""What a verb reports in one line."""
