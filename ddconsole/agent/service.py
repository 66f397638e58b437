"""The agent's work without HTTP: its runs, the one that is conducted, and the machine's state."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ddconsole import __version__
from ddconsole.agent.conductor import Checks, Conductor
from ddconsole.agent.debts import Debts, Patience
from ddconsole.agent.journal import Journal, JournalDamaged, JournalHeld, JournalNewer
from ddconsole.agent.launch_orders import LaunchOrders
from ddconsole.agent.launcher import Launcher, launcher_of
from ddconsole.agent.notify import keep_notifying
from ddconsole.agent.preflight import gate_findings, manifests_folder
from ddconsole.agent.preflight_notes import PreflightNotes, keep_smoke_record, say_once
from ddconsole.agent.presence import Presence
from ddconsole.agent.run_store import (
    RunStore,
    first_events,
    is_rehearsed_elsewhere,
    read_state,
    read_submission,
    summary_of,
)
from ddconsole.agent.staging import Staging
from ddconsole.agent.status_file import StatusFile
from ddconsole.agent.telemetry import Telemetry
from ddconsole.core import states as st
from ddconsole.core.clock import Clock, ScaledClock
from ddconsole.core.commands import decide
from ddconsole.core.deadline import NO_DEADLINE, deadline_in_words, next_time_of_day
from ddconsole.core.displacing import displaced_of
from ddconsole.core.events import DeadlineSet, Event, Warned
from ddconsole.core.run_state import RunState
from ddconsole.core.states import RunCommand
from ddconsole.core.sweep import Deployment
from ddconsole.core.wire import (
    PROTOCOL,
    Command,
    CommandAnswer,
    Hello,
    RunSummary,
    Submission,
)
from ddconsole.engines.register import engine as engine_of
from ddconsole.probe.host import boot_token as probed_boot
from ddconsole.runner.boot import current_boot
from ddconsole.runner.durable import sweep_ruins
from ddconsole.runner.run_directory import RunDirectory

_LOOK = 1.0
"""Real seconds between two looks whether a run is done with."""

logger = logging.getLogger(__name__)


_MOST_REFUSALS = 1000


class Busy(Exception):
    """Another run is active; the text says which."""


class Service:
    """One agent: at most one run is conducted at a time."""

    def __init__(
        self, runs: Path, clock: Clock, launcher: Launcher | None = None, patience: Patience | None = None
    ) -> None:
        self.store = RunStore(runs)
        self.clock = clock
        self.telemetry = Telemetry(clock)
        self.presence = Presence()
        self._launcher = launcher
        self._patience = patience
        self._boot = current_boot()
        self._conductor: Conductor | None = None
        self._conducting: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._id = secrets.token_hex(8)
        self._started = clock.now()
        self.staging = Staging(manifests_folder(runs), probed_boot(Path("/"), 0.0).value or "", clock)
        self._refused: dict[str, CommandAnswer] = {}
        """The last refusals by the ids of their commands."""
        self.consoles = 0
        """Streams that are open."""
        self.quit = asyncio.Event()
        """Set when a console told the agent to leave."""
        self._agent_before = ""
        self.problems: list[str] = []
        """What could not be taken over at the start, for people."""
        self.held = ""
        """Who holds this process: a unit of systemd, or nobody; and why."""
        self.after_reboot = ""
        """Whether the agent starts again after a reboot while something is owed."""

    # --- life

    @property
    def boot(self) -> str:
        """The boot token of now."""
        return self._boot.token

    async def start(self, agent_before: str = "") -> None:
        """Take over the run that was active when the last agent ended, if any; else settle what ended runs owe.

        Args:
            agent_before: why the agent before this one may have ended without a word, where that is known.
        """
        self._agent_before = agent_before
        if not self._take_over(lambda state: state.phase is not st.RunPhase.ENDED or state.live_launch() is not None):
            self._settling = asyncio.create_task(self._settle_ended_runs(), name="debts of ended runs")

    async def _settle_ended_runs(self) -> None:
        """One run after another, while none is active: a unit that comes back would be in the way of one."""
        tried: set[str] = set()
        while self._take_over(lambda state: state.phase is st.RunPhase.ENDED and bool(state.debts), tried):
            while self._conductor is not None and self._conductor.active:
                await self._conductor.journal.changed(_LOOK)

    def _take_over(self, wanted: Callable[[RunState], bool], tried: set[str] | None = None) -> bool:
        """Conduct the first run that is wanted and can be; whether there is one."""
        for run in self.store.directories():
            if tried is not None and run.path.name in tried:
                continue
            try:
                if not wanted(read_state(run)):
                    continue
                if tried is not None:
                    tried.add(run.path.name)
                submission = read_submission(run)
                if self._is_of_another_clock(submission) or is_rehearsed_elsewhere(run):
                    continue
                self._explain(self._conduct(run, submission))
            except JournalHeld:
                continue
            except (JournalDamaged, JournalNewer, OSError, ValueError, KeyError) as problem:
                text = f"{run.path.name} cannot be taken over: {problem}"
                if text not in self.problems:
                    self.problems.append(text)
                    logger.exception("%s", text)
                continue
            return True
        return False

    def _explain(self, conductor: Conductor) -> None:
        """Say what ended the agent that conducted an unfinished run before, where that is known."""
        text, self._agent_before = self._agent_before, ""
        if text and conductor.active:
            conductor.agent_before = text
            conductor.journal.append([Warned(text, "agent")])
            self.problems.append(f"{conductor.run.path.name}: {text}")

    def _is_of_another_clock(self, submission: Submission) -> bool:
        """A rehearsal is no business of a real agent, nor the other way round, though they share a folder."""
        return (submission.rehearsal is not None) != isinstance(self.clock, ScaledClock)

    async def stop(self) -> None:
        """Let go: runners go on, and the next agent finds them."""
        if self._settling is not None:
            self._settling.cancel()
        if self._conducting is not None:
            self._conducting.cancel()
            await asyncio.gather(self._conducting, return_exceptions=True)
        if self._conductor is not None:
            self._conductor.journal.close()
        await self.staging.stop()
        await self.telemetry.stop()

    @contextlib.contextmanager
    def console(self) -> Iterator[None]:
        """Count a console's stream for as long as it is open."""
        self.consoles += 1
        try:
            yield
        finally:
            self.consoles -= 1

    def is_idle(self) -> bool:
        """Whether nobody needs this agent: no run is active and no console is there."""
        return self.active_run is None and self.consoles == 0 and not self.staging.running

    @property
    def owes(self) -> bool:
        """Whether an agent has to be there after a reboot: a run is unfinished, or owes what it displaced."""
        conductor = self._conductor
        if conductor is None or isinstance(self.clock, ScaledClock):
            return False
        return conductor.active or bool(conductor.journal.state.debts)

    @property
    def active_run(self) -> str | None:
        """The run that is conducted and not over."""
        conductor = self._conductor
        return conductor.run.path.name if conductor is not None and conductor.active else None

    def _conduct(self, run: RunDirectory, submission: Submission) -> Conductor:
        engine = engine_of(str(submission.engine["kind"]))
        journal = Journal.open(run.journal, self.clock, boot=self._boot, pid=os.getpid(), version=__version__)
        sweep_ruins(run.folders())
        if not journal.state.created:
            try:
                journal.append([*first_events(submission), *self._deadline_of(submission)])
            except OSError:
                journal.close()
                raise
        if self._conducting is not None:
            self._conducting.cancel()
        if self._conductor is not None:
            self._conductor.journal.close()
        orders = LaunchOrders(submission, engine, lambda: self.telemetry.host)

        async def checked(state: RunState, deployments: tuple[Deployment, ...]) -> tuple[str, ...]:
            if not deployments or not submission.protocol.get("preflight", True):
                return ()
            flags = await orders.watch.known_flags()
            return await gate_findings(submission, state, deployments, flags, run, lambda text: say_once(journal, text))

        async def gate(deployment: str, state: RunState) -> tuple[str, ...]:
            return await checked(state, (state.deployments[deployment],))

        async def recheck(state: RunState) -> tuple[str, ...]:
            return await checked(state, state.deployments_left())

        debts = Debts(run, journal, displaced_of(submission.displace), self._boot.token, self.clock, self._patience)
        launcher = self._launcher or launcher_of(str(submission.protocol.get("launcher", "auto")))
        conductor = Conductor(run, journal, orders, engine, launcher, Checks(gate, recheck), debts, self.clock)
        self._conductor = conductor
        self.telemetry.keep_for(
            run, lambda: conductor.active, lambda: conductor.journal.state.running_cell() is not None
        )
        notes = PreflightNotes(self.store.folder, simulated=submission.rehearsal is not None)
        smoking = partial(keep_smoke_record, journal, submission, orders.build, notes)
        self._conducting = asyncio.create_task(self._watch(conductor, smoking), name=f"conduct {run.path.name}")
        return conductor

    def _deadline_of(self, submission: Submission) -> list[Event]:
        """The plan's deadline as a moment, by this host's clock at the submission."""
        until = submission.protocol.get("until")
        if not until:
            return []
        now = self.clock.now()
        at = next_time_of_day(str(until), now)
        return [DeadlineSet(at, deadline_in_words(at, now), "plan")]

    def _resolved(self, command: Command) -> Command:
        """`until` with its time of day as a moment; one that is none is refused later, where commands are."""
        until = command.changes.get("until")
        if command.name != RunCommand.UNTIL or not until:
            return command
        if until == NO_DEADLINE:
            return replace(command, changes={"at": "0", "text": NO_DEADLINE})
        now = self.clock.now()
        try:
            at = next_time_of_day(str(until), now)
        except ValueError:
            return command
        return replace(command, changes={"at": str(at), "text": deadline_in_words(at, now)})

    async def _watch(self, conductor: Conductor, smoking: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Conduct, and keep the status file that `ddconsole status --short` reads."""
        status = StatusFile(conductor.run, self.clock)
        keeping = asyncio.create_task(status.keep(conductor.journal, self.telemetry, lambda: conductor.trouble))
        notify = read_submission(conductor.run).notify
        telling = asyncio.create_task(keep_notifying(conductor.journal, conductor.run.path.name, notify))
        recording = asyncio.create_task(smoking())
        try:
            await conductor.conduct()
        finally:
            recording.cancel()
            keeping.cancel()
            telling.cancel()

    # --- what consoles ask

    def hello(self) -> Hello:
        """Who answers."""
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            agent=self._id,
            pid=os.getpid(),
            boot=self._boot.token,
            started=self._started,
            hostname=socket.gethostname(),
            run=self.active_run,
            simulated=isinstance(self.clock, ScaledClock),
            now=self.clock.now(),
            clock_scale=self.clock.scale if isinstance(self.clock, ScaledClock) else 1.0,
            problems=self._known_problems(),
            one_controls=True,
            held=self.held,
            after_reboot=self.after_reboot,
        )

    def _known_problems(self) -> tuple[str, ...]:
        conductor = self._conductor
        if conductor is None or not conductor.trouble:
            return tuple(self.problems)
        return (*self.problems, f"{conductor.run.path.name}: {conductor.trouble}")

    def runs(self) -> Sequence[RunSummary]:
        """All runs, newest first."""
        found = [
            summary_of(self.state(run), run.path.name, active=run.path.name == self.active_run)
            for run in self.store.directories()
        ]
        return sorted(found, key=lambda one: one.began, reverse=True)

    def state(self, run: RunDirectory) -> RunState:
        """The state of a run, conducted or not."""
        journal = self.journal(run.path.name)
        return journal.state if journal is not None else read_state(run)

    def journal(self, run: str) -> Journal | None:
        """The open journal of a run, or None when the run is not conducted."""
        conductor = self._conductor
        return conductor.journal if conductor is not None and conductor.run.path.name == run else None

    def submit(self, submission: Submission) -> str:
        """Begin a run.

        Raises:
            Busy: another run is active.
            BadSubmission, RunExists: see `RunStore.create`.
            OSError: its folder cannot be written.
        """
        active = self.active_run
        if active is not None:
            raise Busy(active)
        run = self.store.create(submission)
        try:
            self._conduct(run, submission)
        except OSError:
            self.store.discard(run)
            raise
        return submission.run

    def command(self, run: RunDirectory, command: Command) -> CommandAnswer:
        """Take a command, or refuse it. One that was refused stays refused under its id, however often it comes.

        Raises:
            Busy: the run is over and another one is active.
            OSError: the command could not be written down: it had no effect.
        """
        command = self._resolved(command)
        journal = self.journal(run.path.name)
        conductor = self._conductor
        if journal is None or conductor is None:
            state = read_state(run)
            answer = decide(state, command, self.presence.watchers(run.path.name, state.controller)).answer
            if not answer.taken:
                return answer
            if self.active_run is not None:
                raise Busy(self.active_run)
            conductor = self._conduct(run, read_submission(run))
            journal = conductor.journal
        if command.name == st.RunCommand.RESUME:
            seen = journal.state.phase_seq
            conductor.settle_pause()
            if command.expected_phase == seen:
                # What the pause that was owed is about, the operator was told of.
                command = replace(command, expected_phase=journal.state.phase_seq)
        watchers = self.presence.watchers(run.path.name, journal.state.controller)
        decision = decide(journal.state, command, watchers)
        journal.append(decision.events)
        conductor.wake()
        return decision.answer
