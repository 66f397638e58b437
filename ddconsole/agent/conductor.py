"""The conductor of one run: it looks at the journal's state and at the runner, and does the next thing."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ddconsole.agent import after_boot
from ddconsole.agent.deadline_watch import DeadlineWatch
from ddconsole.agent.debts import CannotDisplace, Debts
from ddconsole.agent.journal import Journal
from ddconsole.agent.launch_orders import LaunchOrders
from ddconsole.agent.launcher import Launcher
from ddconsole.agent.takeover import RunnerEvents, bury, clean
from ddconsole.agent.xid_watch import XidWatch
from ddconsole.core import states as st
from ddconsole.core.clock import Clock
from ddconsole.core.control import Control, control_to_json
from ddconsole.core.deadline import BY_DEADLINE, dropped_cells
from ddconsole.core.drift import drift_checks
from ddconsole.core.engine_identity import engine_changes
from ddconsole.core.events import (
    EngineSeen,
    Event,
    HostRechecked,
    LaunchFailed,
    LaunchGone,
    LaunchHeld,
    LaunchPlanned,
    RunEnded,
    RunPaused,
)
from ddconsole.core.pruning import prunings
from ddconsole.core.repeating import repetitions
from ddconsole.core.run_state import LaunchRow, RunState
from ddconsole.core.schedule import NextLaunch, control_for, next_launch, pause_reason
from ddconsole.engines.engine import Engine
from ddconsole.runner.belonging import members_of
from ddconsole.runner.durable import in_words, write_json
from ddconsole.runner.gpu_memory import GpuMemory, read_level
from ddconsole.runner.run_directory import RunDirectory

TICK = 0.2
"""Real seconds between two looks."""
_LEASE_RENEWAL = 10.0
"""Real seconds between two signs of life to the runner."""
_SPACE_NEEDED = 4 * 1024 * 1024
"""Bytes free below which the sweep pauses rather than lose a result."""
_BY = "ddconsole"

Gate = Callable[[str, RunState], Awaitable[tuple[str, ...]]]
"""Checks before a launch of a deployment: what would spoil it."""
Recheck = Callable[[RunState], Awaitable[tuple[str, ...]]]
"""The same over all that is left of a run, after the machine was started anew."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checks:
    """What is looked at before servers are started."""

    gate: Gate
    recheck: Recheck


class Conductor:
    """Conducts one run until it has ended and is quiet."""

    def __init__(
        self,
        run: RunDirectory,
        journal: Journal,
        orders: LaunchOrders,
        engine: Engine,
        launcher: Launcher,
        checks: Checks,
        debts: Debts,
        clock: Clock,
    ) -> None:
        self.run = run
        self.journal = journal
        self._orders = orders
        self._engine = engine
        self._launcher = launcher
        self._checks = checks
        self._debts = debts
        self._clock = clock
        self._wake = asyncio.Event()
        self._events: RunnerEvents | None = None
        self._events_of = 0
        self._control: Control | None = None
        self._control_at = 0.0
        self._gated: NextLaunch | None = None
        """The launch that the gate let through, while units are being stopped for it."""
        self._pause_owed = False
        self.trouble = ""
        """What keeps the sweep from going on, while that cannot stand in the journal."""
        self._deadline = DeadlineWatch(journal, clock)
        self._xids = XidWatch()
        self.agent_before = ""
        """Why the agent before this one may have ended, where that is known: what died with it did so too."""

    def wake(self) -> None:
        """Look at once: a command was taken."""
        self._wake.set()

    @property
    def active(self) -> bool:
        """Whether the run still needs a conductor."""
        state = self.journal.state
        return state.phase is not st.RunPhase.ENDED or state.live_launch() is not None or self._debts.busy

    async def conduct(self) -> None:
        """Look and act, for ever; storage that fails or a defect of ours pauses the sweep and ends nothing."""
        while True:
            try:
                if self._may_go_on():
                    await self._tick()
                    self.trouble = ""
            except OSError as problem:
                self._hold(f"cannot read or write {in_words(problem)}")
            except Exception as problem:  # a sweep that nobody conducts any more must say so
                logger.exception("conducting %s", self.run.path.name)
                self._hold(f"a defect of ddconsole: {type(problem).__name__}: {problem}")
            try:
                await asyncio.wait_for(self._wake.wait(), TICK)
            except TimeoutError:
                continue
            self._wake.clear()

    def _may_go_on(self) -> bool:
        """Nothing is done before a pause that is owed stands in the journal, or while the journal takes nothing."""
        if self.journal.failed is not None:
            self._hold("")
            return False
        if self._pause_owed:
            self._pause()
        return not self._pause_owed

    def _hold(self, because: str) -> None:
        """Pause and say why. Where the journal cannot take it, `trouble` says it until it can."""
        failed = self.journal.failed
        if failed is not None:
            because = (
                f"STORAGE FAILED: a sync of {in_words(failed)}; nothing more is written to it and nothing goes on. "
                "Put the storage right, then resume: all that was acknowledged is written into a new file"
            )
        if because != self.trouble:
            logger.error("%s", because)
            self.trouble = because
        if failed is None and self.journal.state.phase is st.RunPhase.RUNNING:
            self.journal.give_up_ballast()
            self._pause()

    def _pause(self) -> None:
        self._pause_owed = True
        with contextlib.suppress(OSError):
            self.settle_pause()

    def settle_pause(self) -> None:
        """Put a pause that is owed into the journal, and that into a new file where a sync of it has failed.

        Called when the operator says to go on: that is what the journal must know before it.

        Raises:
            OSError: the storage still fails.
        """
        if self.journal.failed is not None:
            self.journal.write_anew()
            self._pause_owed = True
        if self._pause_owed and self.journal.state.phase is st.RunPhase.RUNNING:
            self.journal.append([RunPaused(_BY, f"{self.trouble}; put it right, then resume")])
        self._pause_owed = False

    async def _tick(self) -> None:
        if self.journal.state.booted:
            await self._after_boot(self.journal.state)
        live = self.journal.state.live_launch()
        if live is not None:
            await self._look_after(live)
        self._keep_protocol()
        self._deadline.look(asyncio.get_running_loop().time())
        state = self.journal.state
        self._pause_if_due(state)
        live = self.journal.state.live_launch()
        if live is None:
            await self._begin_next()
        elif live.state.phase is not st.LaunchPhase.DIRTY:
            self._steer(live)

    # --- the machine was started anew

    async def _after_boot(self, state: RunState) -> None:
        """Nothing of before the boot lives; nothing goes on before it was looked at what the boot broke."""
        why = after_boot.boot_in_words(state.boot_why, state.booted, self._clock.now())
        after_boot.void_what_lived(self.journal, self.run, why)
        if state.phase is st.RunPhase.PAUSED and not state.paused_because.startswith(why):
            after_boot.say_so(self.journal, self.run, why, await self._orders.host())
        if state.phase is not st.RunPhase.RUNNING:
            return
        findings = await self._checks.recheck(state)
        if self.journal.state.phase is not st.RunPhase.RUNNING:
            return
        if after_boot.new_findings(state, findings):
            because = (
                f"{why}, and this is not as it should be: {'; '.join(findings)}; resume again to go on all the same"
            )
            self.journal.append([HostRechecked(findings), RunPaused(_BY, because)])
        else:
            self.journal.append([HostRechecked(findings, overruled=bool(findings))])

    # --- a launch that lives

    async def _look_after(self, live: LaunchRow) -> None:
        if live.state.phase is st.LaunchPhase.DIRTY:
            await self._try_to_clean(live)
            return
        alive = self._launcher.alive(self.run.launch(live.number))
        if self._events is None or self._events_of != live.number:
            self._events, self._events_of = RunnerEvents(self.journal, self.run, live.number), live.number
        self._events.take_over()
        after = self.journal.state.launches[live.number]
        if not alive and after.state.phase in st.LIVE_LAUNCH_PHASES:
            why = "the runner died" if after.pid else "the runner died before it started the server"
            why = f"{why}; {self.agent_before}" if self.agent_before else why
            self.agent_before = ""
            told = await self._launcher.bury(self.run.launch(live.number))
            why = f"{why} ({told})" if told else why
            await bury(self.journal, self.run, after, self._engine, why, self._clock)

    def _keep_protocol(self) -> None:
        """Repeat what is not sure enough, prune what is far behind (it is not repeated), look for drift."""
        for decide in (repetitions, prunings, drift_checks):
            decided: Sequence[Event] = decide(self.journal.state)
            if decided:
                self.journal.append(decided)

    async def _try_to_clean(self, live: LaunchRow) -> None:
        """Nothing goes on until what a launch left is gone; its own processes are ended once more."""
        folder = self.run.launch(live.number)
        if self._launcher.alive(folder):
            return
        if members_of(folder):
            await clean(folder, self._engine, self._clock)
        if members_of(folder):
            return
        gpus = self.journal.state.deployments[live.deployment].placement.gpus
        if await GpuMemory(gpus).held(read_level(folder.gpu_memory)):
            return
        self.journal.append([LaunchGone(live.number)])

    def _pause_if_due(self, state: RunState) -> None:
        if state.phase not in (st.RunPhase.RUNNING, st.RunPhase.DRAINING):
            return
        live = state.live_launch()
        because = pause_reason(state)
        if live is not None and isinstance(live.state, st.Dirty):
            because = f"launch {live.number} left something behind: {'; '.join(live.state.holders)}"
        because = because or self._xids.look(self._orders.seen, _gpus_of(state))
        free = shutil.disk_usage(self.run.path).free
        if free < _SPACE_NEEDED:
            because = f"disk full: {free // 1024} KiB free in {self.run.path.parent}; free space, then resume"
            self.journal.give_up_ballast()
        else:
            self.journal.keep_ballast()
        if because:
            self.journal.append([RunPaused(_BY, because)])

    def _steer(self, live: LaunchRow) -> None:
        """Write the wanted state when it changed, or to renew the lease."""
        before = self._control
        generation = before.generation if before else 0
        lease = before.lease if before else 0
        wanted = control_for(self.journal.state, live, generation, lease)
        now = asyncio.get_running_loop().time()
        same_launch = self._events_of == live.number
        if before is not None and wanted == before and same_launch and now - self._control_at < _LEASE_RENEWAL:
            return
        wanted = control_for(self.journal.state, live, generation + 1, lease + 1)
        write_json(self.run.launch(live.number).control, control_to_json(wanted))
        self._control, self._control_at = wanted, now

    # --- no launch lives

    async def _begin_next(self) -> None:
        """End the run or begin its next launch; neither while a unit is being put back: it would disturb a launch."""
        if not await self._debts.put_back():
            return
        state = self.journal.state
        if state.phase is not st.RunPhase.RUNNING:
            self._gated = None
        if state.phase in (st.RunPhase.PAUSED, st.RunPhase.ENDED):
            return
        if state.phase is not st.RunPhase.RUNNING:
            outcome = "stopped" if state.phase is st.RunPhase.STOPPING else "drained"
            self.journal.append([RunEnded(BY_DEADLINE if state.paused_by == BY_DEADLINE else outcome)])
            return
        due = next_launch(state)
        if due is None:
            self.journal.append([RunEnded("complete" if not dropped_cells(state) else BY_DEADLINE)])
            return
        if due != self._gated:
            if await self._engine_is_another(state):
                return
            findings = await self._checks.gate(due.deployment, state)
            if findings:
                self._hold_back(due, findings)
                return
            self._gated = due
        await self._launch_when_clear(due)

    async def _launch_when_clear(self, due: NextLaunch) -> None:
        """Begin the launch once the units that the plan displaces for it are down; the next look sees to the rest."""
        try:
            clear = await self._debts.clear_away(self.journal.state.deployments[due.deployment])
        except CannotDisplace as problem:
            self._hold_back(due, (str(problem),))
            return
        if clear and self.journal.state.phase is st.RunPhase.RUNNING:
            self._gated = None
            await self._launch(due)

    def _hold_back(self, due: NextLaunch, findings: tuple[str, ...]) -> None:
        self._gated = None
        if self.journal.state.phase is not st.RunPhase.RUNNING:
            return
        self.journal.append(
            [LaunchHeld(due.deployment, findings), RunPaused(_BY, f"launch held back: {'; '.join(findings)}")]
        )

    async def _engine_is_another(self, state: RunState) -> bool:
        """Write down what engine and model are; where they changed, pause: what follows is a group of its own.

        True when no launch may follow now.
        """
        identity = await self._orders.watch.look()
        if self.journal.state.phase is not st.RunPhase.RUNNING:
            return True
        changes = engine_changes(state.engine, identity) if state.engine else ()
        if not changes and state.engine:
            return False
        events: list[Event] = [EngineSeen(identity, changes)]
        if changes:
            words = "; ".join(changes)
            because = f"engine, model or configuration changed since the last launch: {words}. After resume, figures"
            events.append(RunPaused(_BY, f"{because} of before and after are never mixed"))
        self.journal.append(events)
        return bool(changes)

    async def _launch(self, due: NextLaunch) -> None:
        """Write the order, then the intent, then start the runner."""
        order = await self._orders.order(due, self.journal.state)
        folder = self.run.launch(due.number)
        folder.path.mkdir(parents=True, exist_ok=True)
        self._orders.write(order, folder)
        self.journal.append([LaunchPlanned(due.number, due.deployment, due.round)])
        row = self.journal.state.launches[due.number]
        self._control = None
        self._events, self._events_of = RunnerEvents(self.journal, self.run, due.number), due.number
        self._steer(row)
        try:
            await self._launcher.start(self.run, due.number)
        except OSError as problem:
            self.journal.append(
                [
                    LaunchFailed(
                        due.number, "RUNNER-START", f"the runner could not be started: {problem}", retry="change"
                    )
                ]
            )


def _gpus_of(state: RunState) -> frozenset[int]:
    """GPUs that a launch of the run uses, or is still to use."""
    live = state.live_launch()
    used = [*state.deployments_left(), *([state.deployments[live.deployment]] if live is not None else [])]
    return frozenset(gpu for one in used for gpu in one.placement.gpus)
