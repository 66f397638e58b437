"""Everything an operator can do in the console, in one register.

Footer, help, palette, key bindings and the README's key table are made from it. Two rules hold, and are tested: no key
that looks lies beside one that destroys, and no confirmation is answered by a key that opens one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from ddconsole.core import states as st
from ddconsole.core.run_state import CellRow, RunState


class Place(StrEnum):
    """Where an action's key works."""

    EVERYWHERE = "everywhere"
    SWEEP = "sweep"
    LOGS = "logs"
    HOST = "host"
    PREFLIGHT = "preflight"
    RESULTS = "results"


class Danger(IntEnum):
    """What an action can take away."""

    LOOK = 0
    """Nothing: it changes only what is shown."""
    STEER = 1
    """It changes the schedule; no measured time is lost."""
    DESTROY = 2
    """Measured time is lost or the sweep ends: it is always asked about, with what it costs."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. `keys` are as the keyboard says them, the first is the one shown."""

    id: str
    keys: tuple[str, ...]
    label: str
    """For the footer: one or two words."""
    help: str
    place: Place
    danger: Danger = Danger.LOOK
    command: st.CellCommand | st.RunCommand | None = None
    asks: str | None = None
    """When it asks first; None: as its danger says."""

    @property
    def key(self) -> str:
        """The key that is shown."""
        return self.keys[0]


def _cell(command: st.CellCommand, keys: tuple[str, ...], label: str, help_text: str, danger: Danger) -> Action:
    return Action(command.value, keys, label, help_text, Place.SWEEP, danger, command)


def _run(command: st.RunCommand, key: str, label: str, help_text: str, danger: Danger) -> Action:
    return Action(command.value, (key,), label, help_text, Place.SWEEP, danger, command)


def _look(place: Place, name: str, keys: tuple[str, ...], label: str, help_text: str) -> Action:
    return Action(name, keys, label, help_text, place)


_EVERYWHERE = (
    _look(Place.EVERYWHERE, "show-sweep", ("1",), "Sweep", "all cells, with what became of each"),
    _look(Place.EVERYWHERE, "show-logs", ("2",), "Logs", "the servers' logs"),
    _look(Place.EVERYWHERE, "show-host", ("3",), "Host", "NUMA domains, GPUs, links, processes of the host"),
    _look(Place.EVERYWHERE, "show-preflight", ("4",), "Preflight", "what the checks found"),
    _look(Place.EVERYWHERE, "show-results", ("5",), "Results", "tables and charts of what was measured"),
    _look(Place.EVERYWHERE, "help", ("?",), "all keys", "every action, searchable; enter runs it"),
    _look(Place.EVERYWHERE, "palette", ("ctrl+p",), "find", "find an action or a cell by name"),
    Action(
        "take-control",
        ("T",),
        "take control",
        "steer from this console; the one that did only watches from then on",
        Place.EVERYWHERE,
        Danger.STEER,
        asks="if another has it",
    ),
    _look(Place.EVERYWHERE, "reconnect", ("ctrl+r",), "reconnect", "try the link to the host again at once"),
    _look(Place.EVERYWHERE, "quit", ("q", "ctrl+q", "ctrl+c"), "quit", "leave the console; the sweep goes on"),
)

_CELLS = (
    _cell(st.CellCommand.START, ("s",), "start", "make the cell the next one", Danger.STEER),
    _cell(
        st.CellCommand.START_NOW,
        ("S",),
        "start now",
        "stop what runs and begin with this cell",
        Danger.DESTROY,
    ),
    _cell(st.CellCommand.STOP, ("x",), "stop", "end the running cell's requests; the server stays", Danger.DESTROY),
    _cell(st.CellCommand.RETRY, ("R",), "retry", "measure the cell once more", Danger.STEER),
    _cell(
        st.CellCommand.TAKE_BACK,
        ("U",),
        "take back",
        "undo a pruning: measure the cell and all that were pruned with it",
        Danger.STEER,
    ),
    _cell(st.CellCommand.SKIP, ("-",), "skip", "leave the cell out; a running one is stopped", Danger.DESTROY),
    _cell(
        st.CellCommand.EDIT,
        ("E", "enter"),
        "edit",
        "change the cell in place: lengths, concurrency, sampling, server flags",
        Danger.STEER,
    ),
    _cell(st.CellCommand.DUPLICATE, ("D",), "duplicate", "add a copy of the cell below it", Danger.STEER),
)

_RUN = (
    _run(st.RunCommand.PAUSE, "p", "pause", "take no further cell after this one; the server stays up", Danger.STEER),
    _run(st.RunCommand.RESUME, "P", "resume", "go on with the sweep", Danger.STEER),
    _run(
        st.RunCommand.DRAIN,
        "N",
        "no new launches",
        "finish what the running server has to do, start no other",
        Danger.DESTROY,
    ),
    _run(st.RunCommand.UNTIL, "u", "until", "be over by a time of the host's day, or have no deadline", Danger.STEER),
    _run(st.RunCommand.STOP, "ctrl+x", "stop now", "end the running cell, the server and the sweep", Danger.DESTROY),
    _run(
        st.RunCommand.SETTLE,
        "B",
        "put back",
        "start the units again that the paused or ended sweep has stopped",
        Danger.STEER,
    ),
    _run(
        st.RunCommand.WAIVE,
        "A",
        "waive debts",
        "leave what the sweep has stopped as it is: you start it again",
        Danger.DESTROY,
    ),
)

_SWEEP = (
    _look(Place.SWEEP, "mark", ("space",), "mark", "mark the cell: commands go to all marked cells"),
    _look(Place.SWEEP, "mark-range", ("v",), "mark range", "mark from here to where v is pressed again"),
    _look(Place.SWEEP, "mark-shown", ("V",), "mark shown", "mark every cell that the filter shows"),
    _look(Place.SWEEP, "unmark", ("escape",), "clear", "drop marks, range and filter"),
    _look(Place.SWEEP, "filter", ("/",), "filter", "show cells that match words: failed tp4 c8 !ar"),
    _look(Place.SWEEP, "next-problem", (".",), "next problem", "go to the next cell that failed"),
    _look(Place.SWEEP, "previous-problem", (",",), "previous problem", "go to the cell that failed before this one"),
    _look(Place.SWEEP, "go-running", ("r",), "running", "go to the cell that is being measured"),
    _look(Place.SWEEP, "order", ("o",), "order", "problems first, or as planned"),
    _look(Place.SWEEP, "details", ("i",), "details", "everything about the cell under the cursor"),
    _look(Place.SWEEP, "definitions", ("f",), "definitions", "what each figure means"),
    _look(Place.SWEEP, "cell-log", ("l",), "its log", "the log of the launch that this cell ran on"),
)

_LOGS = (
    _look(Place.LOGS, "follow", ("f",), "follow", "show new lines as they come, or hold still"),
    _look(Place.LOGS, "search", ("/",), "search", "find text; letters match both cases"),
    _look(Place.LOGS, "next-match", ("n",), "next", "next match"),
    _look(Place.LOGS, "previous-match", ("N",), "previous", "previous match"),
    _look(Place.LOGS, "error", ("e",), "first error", "go to the first error; again for the next one"),
    _look(Place.LOGS, "wrap", ("w",), "wrap", "break long lines, or cut them"),
    _look(Place.LOGS, "next-launch", ("]",), "next launch", "the launch after this one"),
    _look(Place.LOGS, "previous-launch", ("[",), "previous launch", "the launch before this one"),
    _look(Place.LOGS, "choose-launch", ("o",), "launch", "choose the launch by name"),
    _look(Place.LOGS, "load-log", ("L",), "whole log", "read the log from its beginning"),
    _look(Place.LOGS, "select", ("v",), "select", "select lines from here; again to let go"),
    _look(Place.LOGS, "copy", ("y",), "copy", "copy the selected lines, or the one at the cursor"),
    _look(Place.LOGS, "save", ("s",), "save", "write the selected lines, or what is loaded, to a file"),
)

_OTHERS = (
    _look(Place.HOST, "host-detail", ("i",), "details", "below the GPUs: time series, health, processes, links"),
    _look(Place.PREFLIGHT, "check-again", ("r",), "check again", "run the checks once more"),
    _look(Place.PREFLIGHT, "finding", ("i", "enter"), "details", "evidence and remedy of the finding"),
    Action(
        "accept-finding",
        ("A",),
        "accept",
        "accept the finding with a reason, which stands in the run's record and report",
        Place.PREFLIGHT,
        Danger.STEER,
        asks="for the reason",
    ),
    Action(
        "stage",
        ("M",),
        "stage model",
        "bring model and draft to where the plan wants them",
        Place.PREFLIGHT,
        Danger.STEER,
        asks="always",
    ),
    _look(Place.RESULTS, "export", ("w",), "export", "write LaTeX tables, figures and their data to files"),
    _look(Place.RESULTS, "compare", ("v",), "versus", "compare with another run: what changed, regressions first"),
    _look(Place.RESULTS, "next-table", ("t",), "figure", "another figure in the table and the chart"),
    _look(Place.RESULTS, "rows", ("r",), "rows", "another axis down: method, TP, workload, concurrency, length"),
    _look(Place.RESULTS, "columns", ("o",), "columns", "another axis across"),
    _look(Place.RESULTS, "next-chart", ("c",), "chart", "another kind of chart: by method, over budget, length, ..."),
    _look(Place.RESULTS, "enlarge", ("z",), "enlarge", "the chart alone, and back"),
    _look(Place.RESULTS, "swap", ("s",), "swap", "rows for columns"),
    _look(Place.RESULTS, "next-place", ("]",), "next place", "the same chart of another size, workload or length"),
    _look(Place.RESULTS, "previous-place", ("[",), "previous place", "the chart before this one"),
    _look(Place.RESULTS, "meaning", ("f",), "definitions", "what the figure in the table means, and the marks"),
    _look(Place.RESULTS, "save-as", ("W",), "other formats", "write CSV, JSON Lines, Markdown or Parquet"),
)

ACTIONS: tuple[Action, ...] = (*_CELLS, *_RUN, *_SWEEP, *_LOGS, *_OTHERS, *_EVERYWHERE)
BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}

CONFIRM_KEYS = ("y",)
CANCEL_KEYS = ("n", "escape", "enter", "q")


def actions_at(place: Place) -> tuple[Action, ...]:
    """What works at a place: its own actions first, then those of everywhere."""
    own = tuple(action for action in ACTIONS if action.place is place)
    return (*own, *_EVERYWHERE) if place is not Place.EVERYWHERE else own


def targets(action: Action, rows: Iterable[CellRow]) -> list[CellRow]:
    """Those of `rows` in whose phase the action's command is legal."""
    if not isinstance(action.command, st.CellCommand):
        return []
    legal = st.CELL_COMMANDS[action.command]
    return [row for row in rows if row.state.phase in legal]


def refusal(action: Action, state: RunState, rows: Sequence[CellRow]) -> str:
    """Why the action means nothing now, and what is possible; empty where it is legal for at least one of `rows`."""
    if isinstance(action.command, st.RunCommand):
        if state.phase in st.RUN_COMMANDS[action.command]:
            return ""
        return f"the run is {state.phase}: {action.label} means nothing now. Possible: {_possible_for_run(state)}"
    if action.command is None or targets(action, rows):
        return ""
    if not rows:
        return f"{action.label}: there is no cell under the cursor"
    if len(rows) > 1:
        return f"{action.label} means nothing for any of the {len(rows)} marked cells"
    row = rows[0]
    return f"{row.cell.id} is {row.state.phase}: {action.label} means nothing now. Possible: {possible_for(row)}"


def possible_for(row: CellRow) -> str:
    """The commands that a cell can be given now, with their keys."""
    legal = [one for one in _CELLS if targets(one, [row])]
    return ", ".join(f"{one.key} {one.label}" for one in legal)


def _possible_for_run(state: RunState) -> str:
    legal = [
        one for one in _RUN if isinstance(one.command, st.RunCommand) and state.phase in st.RUN_COMMANDS[one.command]
    ]
    told = [one for one in legal if state.debts or one.command not in st.ABOUT_DEBTS]
    return ", ".join(f"{one.key} {one.label}" for one in told) or "nothing"


_HINTS: dict[st.CellPhase, tuple[str, ...]] = {
    st.CellPhase.RUNNING: ("stop", "skip", "cell-log"),
    st.CellPhase.PENDING: ("start", "start-now", "edit", "skip"),
    st.CellPhase.DONE: ("retry", "edit", "duplicate"),
    st.CellPhase.FAILED: ("edit", "retry", "skip", "cell-log"),
    st.CellPhase.BLOCKED: ("edit", "retry", "skip", "cell-log"),
    st.CellPhase.UNFIT: ("edit", "retry", "skip"),
    st.CellPhase.PRUNED: ("take-back", "retry", "edit", "skip"),
}
_HINTS_OF_OTHER_PHASES = ("retry", "edit", "skip")
MOST_HINTS = 8


def hints(place: Place, state: RunState, rows: Sequence[CellRow]) -> list[Action]:
    """At most eight actions worth a hint here and now, `?` last."""
    if place is Place.SWEEP:
        names = _sweep_hints(state, rows)
    else:
        names = [action.id for action in actions_at(place) if action.place is place][: MOST_HINTS - 2]
        names.append("quit")
    chosen = [BY_ID[name] for name in dict.fromkeys(names)]
    chosen = [action for action in chosen if not refusal(action, state, rows)]
    return [*chosen[: MOST_HINTS - 1], BY_ID["help"]]


def _sweep_hints(state: RunState, rows: Sequence[CellRow]) -> list[str]:
    phase = rows[0].state.phase if rows else st.CellPhase.DONE
    names = list(_HINTS.get(phase, _HINTS_OF_OTHER_PHASES)) if rows else []
    sweep = {st.RunPhase.RUNNING: ["pause"], st.RunPhase.ENDED: []}.get(state.phase, ["resume"])
    return [*names, *sweep, "mark", "filter", "details"]


def key_table() -> str:
    """All keys as a Markdown table, for the README."""
    lines = ["| where | key | action | what it does | asks first |", "|---|---|---|---|---|"]
    for place in Place:
        for action in (one for one in ACTIONS if one.place is place):
            keys = ", ".join(f"`{key}`" for key in action.keys)
            asks = {Danger.LOOK: "", Danger.STEER: "if it costs a start"}.get(action.danger, "always")
            asks = action.asks if action.asks is not None else asks
            asks = "" if isinstance(action.command, st.RunCommand) and action.danger is Danger.STEER else asks
            lines.append(f"| {place} | {keys} | {action.label} | {action.help} | {asks} |")
    return "\n".join(lines) + "\n"
