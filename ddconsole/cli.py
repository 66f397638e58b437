"""The command line: one parser, one module a verb, each imported only when it is asked for."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from ddconsole import __version__

_CELL_VERBS = ("start", "start-now", "stop", "skip", "retry", "take-back", "duplicate")
_RUN_VERBS = ("pause", "resume", "no-new-launches", "stop-run", "until")

_MODULES = {
    "open": "ddconsole.commands.attach",
    "demo": "ddconsole.commands.run",
    "rehearse": "ddconsole.commands.run",
    "run": "ddconsole.commands.run",
    "plan": "ddconsole.commands.plan",
    "preflight": "ddconsole.commands.preflight",
    "smoke": "ddconsole.commands.smoke",
    "stage": "ddconsole.commands.stage",
    "host": "ddconsole.commands.host",
    "prepare": "ddconsole.commands.prepare",
    "attach": "ddconsole.commands.attach",
    "runs": "ddconsole.commands.runs",
    "cells": "ddconsole.commands.cells",
    "servers": "ddconsole.commands.servers",
    "logs": "ddconsole.commands.logs",
    "export": "ddconsole.commands.export",
    "compare": "ddconsole.commands.compare",
    "status": "ddconsole.commands.status",
    "edit": "ddconsole.commands.steer",
    "debts": "ddconsole.commands.debts",
    **dict.fromkeys((*_CELL_VERBS, *_RUN_VERBS), "ddconsole.commands.steer"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status. Every expected failure is one line on standard error, never a traceback."""
    options = parser().parse_args(arguments)
    verb = options.verb or "open"
    if sys.stdout.isatty():
        from ddconsole.commands.terminal import mend_terminal  # noqa: PLC0415  # a status bar has no use for it

        mend_terminal()
    try:
        module = import_module(_MODULES[verb])
    except ModuleNotFoundError as problem:
        if (problem.name or "ddconsole").partition(".")[0] in ("ddconsole", "screens"):
            raise
        print(f"ddconsole: the package {problem.name} is missing here → pip install ddconsole", file=sys.stderr)
        return 2
    try:
        return int(module.main(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`): nothing is wrong, and nobody is there to be told.
        sys.stderr.close()
        return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="ddconsole",
        description="Run, watch and steer LLM-serving benchmark sweeps on a GPU host. Without a verb: the console.",
        epilog="RUN: the beginning of a run's id, the newest run without it. "
        "CELL: c061, or a pattern such as 'ddtree-b32 TP1 *'. "
        "Example: ddconsole skip demo c004 'ngram *'",
    )
    root.add_argument("--version", action="version", version=f"ddconsole {__version__}")
    root.set_defaults(verb=None, host=None, run=None, offline=False)
    verbs = root.add_subparsers(dest="verb", metavar="VERB")
    _add_sweeps(verbs)
    _add_staging(verbs)
    _add_looking(verbs)
    _add_steering(verbs)
    return root


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help_text: str
) -> argparse.ArgumentParser:
    return verbs.add_parser(name, help=help_text, description=help_text)


def _add_host(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--host", help="ssh alias, user@host:port or `local`; default: where the run was begun")


def _add_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="JSON instead of text")


def _add_sweeps(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, help_text in (
        ("run", "begin a sweep and open the console on it"),
        ("rehearse", "the same on a simulated host: no GPU needed, everything is marked simulated"),
        ("demo", "a real sweep on this machine with llama.cpp and a small model"),
    ):
        verb = _verb(verbs, name, help_text)
        if name != "demo":
            verb.add_argument("plan", metavar="PLAN", help="a plan file, or the name of one that ships")
        how = verb.add_mutually_exclusive_group()
        how.add_argument("--headless", action="store_true", help="no console: progress as lines, until it has ended")
        how.add_argument("--detach", action="store_true", help="begin it and leave; `ddconsole attach` comes back")
        verb.add_argument("--name", help="the run's id; default: plan and time")
        verb.add_argument("--force", action="store_true", help="begin although preflight checks fail")
        if name == "rehearse":
            verb.add_argument("--scale", type=float, default=60.0, help="how many times faster than real; default 60")
            verb.add_argument("--faults", metavar="FILE", help="JSON list of faults to inject")
            verb.add_argument(
                "--until",
                metavar="HH:MM",
                help="be over by then, by its fast clock; default: no deadline, also no plan's",
            )
        else:
            _add_host(verb)
    plan = _verb(verbs, "plan", "what a plan expands to: cells, launches, time, memory, and what will not fit")
    plan.add_argument("plan", metavar="PLAN")
    _add_json(plan)
    preflight = _verb(verbs, "preflight", "check the host before a sweep; exit status 0, 1, 2 for pass, warn, fail")
    preflight.add_argument("plan", metavar="PLAN")
    preflight.add_argument(
        "--tier",
        choices=("gate", "standard", "load", "proxmox"),
        default="standard",
        help="gate: seconds, as before each launch; load: puts work on idle GPUs; proxmox: the host below alone",
    )
    preflight.add_argument("--record", action="store_true", help="record the host as good: later ones are compared")
    preflight.add_argument("--accept", metavar="ID", help="accept this check's finding; needs --because")
    preflight.add_argument("--because", default="", metavar="TEXT", help="the reason: it stands in every run's record")
    preflight.add_argument("--revoke", metavar="ID", help="take back what was accepted of this check")
    _add_json(preflight)
    _add_host(preflight)


def _add_staging(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    smoke = _verb(verbs, "smoke", "start the baseline and one of each kind of speculation for 16 tokens, then stop")
    smoke.add_argument("plan", metavar="PLAN")
    _add_host(smoke)
    stage = _verb(verbs, "stage", "bring the plan's model and draft to where it wants them, with hashes kept")
    stage.add_argument("plan", metavar="PLAN")
    stage.add_argument("--yes", action="store_true", help="do not ask")
    stage.add_argument("--stop", action="store_true", help="stop what is under way; what was copied is kept")
    stage.add_argument("--forget", action="store_true", help="take the source's word where an earlier copy differs")
    _add_host(stage)


def _add_looking(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    host = _verb(verbs, "host", "the machine's GPUs, NUMA domains and PCIe links")
    host.add_argument("host", metavar="HOST", nargs="?", default="local")
    host.add_argument("of", metavar="HOST", nargs="?", help="`host prepare HOST` is `prepare HOST`")
    host.add_argument("--watch", action="store_true", help="again every two seconds")
    _add_json(host)
    prepare = _verb(verbs, "prepare", "bring the agent to a host beforehand; starts nothing")
    prepare.add_argument("host", metavar="HOST", help="ssh alias, or user@host:port")
    prepare.add_argument("--python", help="the interpreter there, 3.11 or newer; default: found on the path")
    prepare.add_argument("--state", help="the folder there for what the agent keeps; default: by the XDG rules")
    _add_json(prepare)
    attach = _verb(verbs, "attach", "open the console on a run; where its host is lost, on the copy here")
    attach.add_argument("run", metavar="RUN", nargs="?")
    attach.add_argument("--headless", action="store_true", help="no console: progress as lines, until it has ended")
    attach.add_argument("--readonly", action="store_true", help="look, and touch nothing")
    attach.add_argument("--offline", action="store_true", help="open the copy here and ask no host")
    _add_host(attach)
    runs = _verb(verbs, "runs", "the runs of a host, newest first")
    _add_host(runs)
    _add_json(runs)
    cells = _verb(verbs, "cells", "the sweep table as text")
    cells.add_argument("run", metavar="RUN", nargs="?")
    _add_host(cells)
    _add_json(cells)
    servers = _verb(verbs, "servers", "what the compared servers run with, and where the plan does not account for it")
    servers.add_argument("run", metavar="RUN", nargs="?")
    servers.add_argument("--all", action="store_true", help="every argument that the servers told")
    _add_host(servers)
    _add_json(servers)
    logs = _verb(verbs, "logs", "a server's log")
    logs.add_argument("run", metavar="RUN", nargs="?")
    logs.add_argument("launch", metavar="LAUNCH", nargs="?", type=int, help="default: the last one")
    logs.add_argument("--follow", action="store_true")
    _add_host(logs)
    export = _verb(verbs, "export", "LaTeX tables and figures of a run, or all its cells in another format")
    export.add_argument("run", metavar="RUN", nargs="?")
    export.add_argument("--to", metavar="DIR", help="a folder; with another --format a file, default standard output")
    export.add_argument(
        "--format",
        choices=("latex", "csv", "jsonl", "markdown", "parquet"),
        default="latex",
        help="default latex; parquet needs pip install 'ddconsole[parquet]'",
    )
    _add_host(export)
    _add_compare(verbs)
    status = _verb(verbs, "status", "one line about the newest run, from what is on disk")
    status.add_argument("--short", action="store_true", help="for the tmux status bar")
    _add_json(status)


def _add_compare(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    compare = _verb(verbs, "compare", "two runs: what changed around them, and what became of each cell")
    compare.epilog = (
        "A and B: runs, or paths of their folders. Exit status 0: nothing regressed; 1: a cell regressed, or has no "
        "figures any more; 2: bad input; 3: the runs are not comparable."
    )
    compare.add_argument("before", metavar="A", help="what B is held against")
    compare.add_argument("after", metavar="B")
    compare.add_argument(
        "--figure",
        choices=("output_rate", "server_rate", "ttft", "end_to_end", "acceptance"),
        default="output_rate",
        help="which one is listed and decides the exit status; default output_rate",
    )
    compare.add_argument(
        "--least", type=float, default=1.0, metavar="PERCENT", help="changes below are none; default 1"
    )
    compare.add_argument("--latex", metavar="DIR", help="write tables and a figure for LaTeX, and a PDF")
    compare.add_argument("--all", action="store_true", help="list also the cells that did not change")
    _add_json(compare)


def _add_steering(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    texts = {
        "start": "make cells the next ones",
        "start-now": "the same, and stop what runs",
        "stop": "end a running cell's requests, not the server",
        "skip": "leave cells out; a running one is stopped",
        "retry": "measure cells once more",
        "take-back": "undo a pruning: measure cells and all that were pruned with them",
        "duplicate": "add a copy of a cell",
        "edit": "change a cell: --set concurrency=4, --flag max-total-tokens=4096",
    }
    for name in (*_CELL_VERBS, "edit"):
        verb = _verb(verbs, name, texts[name])
        verb.add_argument("run", metavar="RUN")
        verb.add_argument("cells", metavar="CELL", nargs="+", help="ids, or label patterns such as 'ddtree-b32 TP1 *'")
        verb.add_argument("--because", default="", help="a reason, kept in the journal")
        if name == "edit":
            verb.add_argument("--set", metavar="FIELD=VALUE", action="append", default=[], dest="fields")
            verb.add_argument("--flag", metavar="NAME[=VALUE]", action="append", default=[], dest="flags")
            verb.add_argument("--no-flag", metavar="NAME", action="append", default=[], dest="removed")
        _add_yes(verb)
        _add_take_control(verb)
        _add_host(verb)
        _add_json(verb)
    run_texts = {
        "pause": "take no further cell after this one; the server stays up",
        "resume": "go on",
        "no-new-launches": "finish what the running server has to do, start no other",
        "stop-run": "stop now",
        "until": "be over by a time of the host's day; what does not fit is dropped from the end",
    }
    for name in _RUN_VERBS:
        verb = _verb(verbs, name, run_texts[name])
        if name == "until":
            verb.add_argument("time", metavar="HH:MM|none")
        verb.add_argument("run", metavar="RUN", nargs="?")
        verb.add_argument("--because", default="")
        _add_yes(verb)
        _add_take_control(verb)
        _add_host(verb)
        _add_json(verb)
    debts = _verb(verbs, "debts", "units that a run has stopped and not put back yet; status 1 while there are any")
    debts.add_argument("run", metavar="RUN", nargs="?")
    what = debts.add_mutually_exclusive_group()
    what.add_argument("--settle", action="store_true", help="put them back now: the run is paused or over")
    what.add_argument("--waive", metavar="UNIT", action="append", help="leave it alone: starting it is up to you")
    _add_yes(debts)
    _add_take_control(debts)
    _add_host(debts)
    _add_json(debts)


def _add_yes(verb: argparse.ArgumentParser) -> None:
    """The console asks before what these verbs do. A command line does not, and takes the answer all the same."""
    verb.add_argument("--yes", action="store_true", help="changes nothing: only the console asks before it does this")


def _add_take_control(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--take-control",
        action="store_true",
        help="even if another operator's console has control and is there: it only watches from then on",
    )


if __name__ == "__main__":
    sys.exit(main())
