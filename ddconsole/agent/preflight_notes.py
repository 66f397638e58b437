"""What stands beside the runs for pre-flight: findings that the operator accepted, the host's profile, smoke tests."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddconsole.agent.journal import Journal
from ddconsole.core.events import Warned
from ddconsole.core.wire import Submission
from ddconsole.preflight.profile import build_key
from ddconsole.runner.durable import write_json

_MOST_SMOKES = 500


class PreflightNotes:
    """Files in the folder of runs; those of a simulated host are apart.

    Args:
        runs: the folder of runs.
        simulated: whether the host is a rehearsed one.
    """

    def __init__(self, runs: Path, *, simulated: bool) -> None:
        end = "-simulated.json" if simulated else ".json"
        self._accepted = runs / f".accepted{end}"
        self._profile = runs / f".profile{end}"
        self._smoke = runs / f".smoke{end}"

    def accepted(self) -> list[Mapping[str, Any]]:
        """What was accepted: id, about, because, by, at."""
        return [one for one in _read(self._accepted, []) if isinstance(one, dict)]

    def accept(self, one: Mapping[str, Any]) -> None:
        """Accept a finding, in place of what was accepted of it before."""
        others = [kept for kept in self.accepted() if (kept.get("id"), kept.get("about")) != (one["id"], one["about"])]
        write_json(self._accepted, [*others, one])

    def revoke(self, check: str) -> bool:
        """Take back what was accepted of a check; whether there was anything."""
        before = self.accepted()
        kept = [one for one in before if one.get("id") != check]
        if len(kept) != len(before):
            write_json(self._accepted, kept)
        return len(kept) != len(before)

    def profile(self) -> Mapping[str, Any] | None:
        """The host as it was recorded, or None."""
        found = _read(self._profile, None)
        return found if isinstance(found, dict) else None

    def record(self, profile: Mapping[str, Any]) -> None:
        """Record the host."""
        write_json(self._profile, profile)

    def smoke(self) -> list[Mapping[str, Any]]:
        """Launches that served tokens: build, how, run, at."""
        return [one for one in _read(self._smoke, []) if isinstance(one, dict)]

    def served(self, one: Mapping[str, Any]) -> None:
        """A launch has served tokens: kept once for each build and way of decoding."""
        known = self.smoke()
        if not any((kept.get("build"), kept.get("how")) == (one["build"], one["how"]) for kept in known):
            write_json(self._smoke, [*known, one][-_MOST_SMOKES:])


async def keep_smoke_record(
    journal: Journal, submission: Submission, build: Callable[[], Awaitable[Mapping[str, Any]]], notes: PreflightNotes
) -> None:
    """Write down which builds served tokens, as launches become ready: each passes a canary before it is."""
    seen: set[int] = set()
    while True:
        for launch in list(journal.state.launches.values()):
            if launch.number in seen or not launch.canary:
                continue
            seen.add(launch.number)
            key = build_key(await build())
            deployment = journal.state.deployments[launch.deployment]
            how = deployment.speculative.kind if deployment.speculative else "plain"
            if key:
                notes.served({"build": key, "how": how, "run": submission.run, "at": journal.state.at})
        await journal.changed(60.0)
        await asyncio.sleep(0)


ACCEPTED = "accepted finding"
"""What a warning of the journal is about that tells of one."""


def say_once(journal: Journal, text: str) -> None:
    """Write into the journal, and so into the report, that a finding was accepted."""
    if not any(one.about == ACCEPTED and one.text == text for one in journal.state.warnings):
        journal.append([Warned(text, ACCEPTED)])


def accepted_reasons(accepted: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The reason of each, by check and what it is about."""
    return {
        (str(one.get("id")), str(one.get("about", ""))): f"{one.get('because')} ({one.get('by')})" for one in accepted
    }


def _read(path: Path, default: Any) -> Any:
    """A file of ours; one that is damaged is as good as none, and stays where it is until it is written anew."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return default
