"""What is written down of a unit before it is stopped, and `debts.json`, where it stands until the unit is back."""

import hashlib
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddconsole.agent.served_unit import Served, served_from_json, served_to_json
from ddconsole.core.plan_secrets import secret_reason
from ddconsole.runner.durable import write_whole

_ONLY_FOR_US = 0o600
"""A unit's environment may hold secrets."""


@dataclass(frozen=True, slots=True)
class DebtRecord:
    """One unit as it was."""

    unit: str
    user: bool
    """Whether it is one of the account's own manager."""
    was_up: bool
    """False: it was down, and only what starts it has been stopped."""
    invocation: str
    boot: str
    taken: float
    definition: Mapping[str, str]
    """Hashes of command, environment and account: what is put back must be the same."""
    triggers: tuple[str, ...] = ()
    """Sockets, timers and paths that were active and have been stopped too."""
    transient: bool = False
    """It vanishes when it stops: `settings` and `command` make it again."""
    settings: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    served: Served | None = None
    control_group: str = ""
    secret: str = ""
    """Not empty where settings and command were left out, in the journal, because they hold a secret."""

    def for_journal(self) -> dict[str, Any]:
        """The record without secrets: the journal is shown and copied."""
        secret = _secret_in(self)
        public = replace(self, settings=(), command=(), secret=secret) if secret else self
        return record_to_json(public)


def hashed(definition: Mapping[str, str]) -> dict[str, str]:
    """A definition by its hashes, which say that a value changed and not what it is."""
    return {name: hashlib.sha256(value.encode()).hexdigest()[:16] for name, value in definition.items()}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """The parts in which two hashed definitions differ."""
    return tuple(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))


def record_to_json(record: DebtRecord) -> dict[str, Any]:
    """As it is written."""
    return {**asdict(record), "served": served_to_json(record.served)}


def record_from_json(data: Mapping[str, Any]) -> DebtRecord:
    """The inverse; fields of a later version are ignored.

    Raises:
        ValueError: this is no record.
    """
    try:
        known: dict[str, Any] = {name: data[name] for name in DebtRecord.__dataclass_fields__ if name in data}
        known.update({name: tuple(known[name]) for name in ("triggers", "settings", "command") if name in known})
        known["served"] = served_from_json(known.get("served"))
        return DebtRecord(**known)
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"no record of a debt: {problem}") from problem


def _secret_in(record: DebtRecord) -> str:
    """Why settings or command of a transient unit hold a secret; empty where they do not."""
    pairs: list[tuple[str, str]] = []
    for line in record.settings:
        name, _, value = line.partition("=")
        try:
            words = shlex.split(value) if name == "Environment" else [value]
        except ValueError:
            words = [value]
        for word in words:
            key, _, content = word.partition("=")
            pairs.append((key, content) if name == "Environment" else (name, word))
    flags = ("", *record.command)
    for flag, word in zip(flags, record.command, strict=False):
        name, equals, value = word.partition("=")
        pairs.append((name.lstrip("-"), value) if equals else (flag.lstrip("-"), word))
    return next((why for name, value in pairs if (why := secret_reason(name, value))), "")


class DebtFile:
    """`debts.json` of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """What was wrong with the file that was found, and where it is now."""
        self._records: dict[str, DebtRecord] = self._read()

    def _read(self) -> dict[str, DebtRecord]:
        try:
            data = json.loads(self.path.read_bytes())
            return {str(name): record_from_json(one) for name, one in data["debts"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            aside = self.path.with_name(f"{self.path.name}.unreadable-{int(time.time())}")
            self.path.rename(aside)
            self.problem = (
                f"debts.json could not be read ({problem}); it is now {aside.name}, the journal's record is used"
            )
            return {}

    @property
    def records(self) -> Mapping[str, DebtRecord]:
        """What is written, by debt."""
        return self._records

    def write(self, name: str, record: DebtRecord) -> None:
        """Write a record down, durable when this returns.

        Raises:
            OSError: it could not be written; the file is as it was.
        """
        self._store({**self._records, name: record})

    def remove(self, name: str) -> None:
        """Strike a record out.

        Raises:
            OSError: as `write`.
        """
        self._store({one: record for one, record in self._records.items() if one != name})

    def _store(self, records: dict[str, DebtRecord]) -> None:
        content = {"debts": {name: record_to_json(one) for name, one in records.items()}}
        write_whole(self.path, json.dumps(content, indent=1).encode() + b"\n", _ONLY_FOR_US)
        self._records = records
