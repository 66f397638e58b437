"""The runs of this host: their folders, created and found again."""

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from ddconsole.core.events import (
    CellAdded,
    CellsSkipped,
    CellsUnfit,
    DeploymentAdded,
    Event,
    RunCreated,
)
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.core.submission_json import submission_from_json
from ddconsole.core.wire import RunSummary, Submission
from ddconsole.probe.rehearsed import REHEARSAL_VARIABLE
from ddconsole.runner.durable import sync_folder, write_json, write_whole
from ddconsole.runner.run_directory import RunDirectory

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class RunExists(Exception):
    """A run of that id is there."""


class BadSubmission(Exception):
    """The submission cannot be taken; the text says why."""


class RunStore:
    """A folder of run directories."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def directory(self, run: str) -> RunDirectory | None:
        """The folder of a run, or None."""
        if not RUN_ID.fullmatch(run):
            return None
        found = RunDirectory(self.folder / run)
        return found if found.journal.is_file() else None

    def directories(self) -> Iterable[RunDirectory]:
        """All runs, in order of their ids."""
        for path in sorted(self.folder.iterdir()):
            if (path / "journal.jsonl").is_file() and not path.is_symlink():
                yield RunDirectory(path)

    def create(self, submission: Submission) -> RunDirectory:
        """Make the folder of a new run; its journal is written by the caller, from `first_events`.

        Raises:
            BadSubmission: the id is not allowed.
            RunExists: there is one of that id.
            OSError: it could not be written; nothing of it is left.
        """
        if not RUN_ID.fullmatch(submission.run):
            raise BadSubmission(f"run id {submission.run!r} is not allowed: {RUN_ID.pattern}")
        run = RunDirectory(self.folder / submission.run)
        try:
            run.path.mkdir()
        except FileExistsError as problem:
            if run.journal.exists() or not run.path.is_dir():
                raise RunExists(submission.run) from problem
            # An agent died while it made this folder: without a journal nobody was ever told of the run.
            shutil.rmtree(run.path)
            run.path.mkdir()
        try:
            (run.path / "cells").mkdir()
            (run.path / "launches").mkdir()
            write_whole(run.plan, submission.plan_text.encode())
            write_json(run.texts, submission.texts)
            write_json(run.submission, asdict(submission))
            sync_folder(self.folder)
        except OSError:
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        return run

    def discard(self, run: RunDirectory) -> None:
        """Take away the folder of a run that could not be begun."""
        shutil.rmtree(run.path, ignore_errors=True)


def first_events(submission: Submission) -> list[Event]:
    """The events with which a run's journal begins."""
    events: list[Event] = [
        RunCreated(
            run=submission.run,
            plan_name=submission.plan_name,
            plan_sha256=submission.plan_sha256,
            host=submission.host,
            baseline=submission.baseline,
            simulated=submission.rehearsal is not None,
            version=submission.version,
            engine=str(submission.engine["kind"]),
            protocol=submission.protocol,
        )
    ]
    events += [DeploymentAdded(one) for one in submission.deployments]
    events += [CellAdded(one) for one in submission.cells]
    for because in dict.fromkeys(why for _, why in submission.skipped):
        cells = tuple(cell for cell, why in submission.skipped if why == because)
        events.append(CellsSkipped(cells, "plan", because))
    for because in dict.fromkeys(why for _, why in submission.unfit):
        events.append(CellsUnfit(tuple(cell for cell, why in submission.unfit if why == because), because))
    return events


def read_submission(run: RunDirectory) -> Submission:
    """The submission of a run that is taken over.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return submission_from_json(json.loads(run.submission.read_bytes()))


def summary_of(state: RunState, run: str, *, active: bool) -> RunSummary:
    """One line about a run."""
    created = state.created
    return RunSummary(
        run=run,
        plan_name=created.plan_name if created else "",
        phase=state.phase,
        outcome=state.outcome,
        began=state.began,
        at=state.at,
        counts={phase.value: number for phase, number in state.counts().items()},
        simulated=bool(created and created.simulated),
        active=active,
    )


def read_state(run: RunDirectory) -> RunState:
    """The state of a run that nobody conducts, from its journal."""
    entries, _ = read_lines(run.journal.read_bytes())
    return fold(entries)


def is_rehearsed_elsewhere(run: RunDirectory) -> bool:
    """Whether the run is a rehearsal on another simulated host: its clock, GPUs and faults are not this agent's."""
    try:
        environment = json.loads((run.path / "rehearsal.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(environment, dict) and environment.get(REHEARSAL_VARIABLE) != os.environ.get(REHEARSAL_VARIABLE)
