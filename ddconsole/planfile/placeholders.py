"""What a plan leaves to the machine that reads it: `{python}` in a command, `{package:NAME}/file` as a model.

Both are for plans that ship, which cannot know where an interpreter or a package is installed. They mean this machine:
a plan for another host writes its paths out.
"""

import importlib.util
import re
import sys
from pathlib import Path

from ddconsole.core.coming_back import LOCAL
from ddconsole.core.plan import Plan
from ddconsole.core.plan_problem import PlanError, PlanProblem

PYTHON = "{python}"
"""The interpreter that runs ddconsole."""

_PACKAGE = re.compile(r"\{package:([A-Za-z_][A-Za-z0-9_]*)\}/(.+)")
_BRACES = re.compile(r"\{[A-Za-z_:]*\}")


def resolve_placeholders(plan: Plan, host: str | None = None) -> Plan:
    """The plan with its placeholders filled in.

    Args:
        plan: as it was read.
        host: where it is to run, where that is not the plan's own host.

    Raises:
        PlanError: a package or its file is not there, a placeholder is unknown, or stands for a file of this machine
            though the plan is to run on another one.
    """
    where = host or plan.host
    if where != LOCAL and (problems := _of_this_machine(plan, where)):
        raise PlanError(problems)
    problems = []
    command = plan.engine.command
    if command is not None:
        command = tuple(_word(word, f"engine.command[{place}]", problems) for place, word in enumerate(command))
    paths = {name: _path(value, f"model.{name}", problems) for name, value in _model_paths(plan).items()}
    if problems:
        raise PlanError(problems)
    return plan.model_copy(
        update={
            "engine": plan.engine.model_copy(update={"command": command}),
            "model": plan.model.model_copy(update=paths),
        }
    )


def _model_paths(plan: Plan) -> dict[str, str]:
    paths = {"path": plan.model.path, "draft": plan.model.draft}
    return {name: value for name, value in paths.items() if value is not None}


def _of_this_machine(plan: Plan, host: str) -> list[PlanProblem]:
    """What in the plan names a file of this machine, for a host that has others."""
    found: list[tuple[str, str, str]] = []
    for place, word in enumerate(plan.engine.command or ()):
        if word == PYTHON:
            field = f"engine.command[{place}]"
            found.append((field, f"{PYTHON} is this machine's interpreter", "write the path of the one there"))
    if plan.engine.command is None and plan.engine.kind == "llamacpp":
        found.append(("engine.command", "none is named", "write how llama-server is started there"))
    elif plan.engine.command is None and plan.engine.python is None:
        found.append(("engine.python", "none is named", "write the path of the interpreter that has the engine there"))
    for name, value in _model_paths(plan).items():
        if _PACKAGE.fullmatch(value):
            found.append((f"model.{name}", f"{value} is a file of this machine", "write the path there"))
    return [
        PlanProblem("E210", "plan", 0, 0, field, f"{field}: {text}, and the plan is to run on {host}", do)
        for field, text, do in found
    ]


def _word(word: str, field: str, problems: list[PlanProblem]) -> str:
    if word == PYTHON:
        return sys.executable
    if _BRACES.fullmatch(word):
        problems.append(
            PlanProblem("E210", "plan", 0, 0, field, f"{field}: unknown placeholder {word}", f"use {PYTHON}")
        )
    return word


def _path(value: str, field: str, problems: list[PlanProblem]) -> str:
    match = _PACKAGE.fullmatch(value)
    if match is None:
        return value
    package, name = match.groups()
    folder = _package_folder(package)
    if folder is None:
        do = f"pip install {package.replace('_', '-')}"
        problems.append(PlanProblem("E201", "plan", 0, 0, field, f"{field}: no package {package} is installed", do))
        return value
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        there = ", ".join(sorted(one.name for one in folder.iterdir() if one.is_file())[:8])
        text = f"{field}: package {package} has no file {name}"
        problems.append(PlanProblem("E201", "plan", 0, 0, field, text, f"there is {there}"))
        return value
    return str(path)


def _package_folder(package: str) -> Path | None:
    """Where an installed package keeps its files; found without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None
