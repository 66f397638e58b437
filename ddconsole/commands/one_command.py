"""One command to a run from a command line that does not stay: as a console of its own, and how a refusal reads."""

import argparse
import dataclasses
import secrets
import time
from collections.abc import Mapping
from typing import Any

from ddconsole.core.control_text import has_control_since
from ddconsole.core.wire import Command, CommandAnswer
from ddconsole.link.console_identity import ConsoleIdentity


def one_command(
    options: argparse.Namespace,
    name: str,
    cells: tuple[str, ...] = (),
    changes: Mapping[str, str | None] | None = None,
    because: str = "",
) -> Command:
    """The command; `--take-control` takes control even from a console that is there."""
    me = ConsoleIdentity(where="command line")
    return Command(
        secrets.token_hex(8),
        name,
        me.by,
        cells,
        changes or {},
        because,
        console=me.console,
        where=me.where,
        once=True,
        take=options.take_control,
    )


def answer_json(answer: CommandAnswer) -> dict[str, Any]:
    """What became of it as JSON; who has control only where that is why it was refused."""
    return {name: value for name, value in dataclasses.asdict(answer).items() if value is not None}


def answer_line(name: str, answer: CommandAnswer) -> str:
    """What became of it; a refusal because another console has control says who, since when, and what to do."""
    if answer.taken:
        return answer.text
    if answer.controller is None:
        return f"refused: {answer.text}"
    since = has_control_since(answer.controller, time.time())
    return f"refused: {since}: {name} was not done → ask them, or take control with --take-control"
