"""The debts of one run: units of systemd that are stopped while launches need their GPU, and put back afterwards.

Everything goes in small steps, and each step begins by asking systemd how things are: an agent that was killed
anywhere in between finds out what is true and goes on from there. The order is what makes that safe: first the journal,
then `debts.json`, then the file that holds the unit back, and then it is stopped.
"""

import asyncio
import logging
from dataclasses import dataclass, replace

from ddconsole.agent.debt_record import DebtFile, DebtRecord, differences, hashed, record_from_json
from ddconsole.agent.journal import Journal
from ddconsole.agent.served_unit import answers, find_served
from ddconsole.agent.systemd_units import Systemd, UnitProblem, UnitState, processes_of
from ddconsole.core.clock import Clock
from ddconsole.core.displacing import Displaced, due_back, to_clear_away
from ddconsole.core.events import DebtKept, DebtSettled, DebtTaken, Warned
from ddconsole.core.sweep import Deployment
from ddconsole.runner.identity import describe, identify
from ddconsole.runner.run_directory import RunDirectory

_LOOKS_APART = 0.5
"""Real seconds between two looks at a unit that starts or stops: each one starts a program."""
_LOOKS_AT_KEPT_APART = 10.0
"""The same for one that could not be put back: somebody may put it right."""
_STOP_DEADLINE = 180.0
"""Seconds in which a unit has to stop, and all of its processes have to end: systemd's own limit is 90 by default."""
_STARTING_FIRST = (".socket",)
"""Triggers that a unit finds open when it starts; timers and paths follow it."""
_KINDS = (".service", ".socket", ".timer")

_UNTOUCHED = "it had not been stopped"

logger = logging.getLogger(__name__)


class CannotDisplace(Exception):
    """A unit cannot be stopped, or could not be put back; the text says why and what to do."""


class _Kept(Exception):
    """An attempt to put a unit back has failed; the text says why."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to watch, in seconds."""

    alive: float = 20.0
    """A unit that ends sooner after its start is not put back."""
    answer: float = 1200.0
    """A server has to answer within this time after its start: it loads a model first."""


@dataclass
class _Attempt:
    """An attempt to put a unit back that is under way."""

    how: str
    began: float
    invocation: str = ""
    up_since: float | None = None


class Debts:
    """Takes and settles the debts of one run."""

    def __init__(
        self,
        run: RunDirectory,
        journal: Journal,
        displaced: tuple[Displaced, ...],
        boot: str,
        clock: Clock,
        patience: Patience | None = None,
    ) -> None:
        self._journal = journal
        self._displaced = displaced
        self._boot = boot
        self._clock = clock
        self._patience = patience or Patience()
        self._managers = (Systemd(user=False), Systemd(user=True))
        self._file = DebtFile(run.debts)
        if self._file.problem:
            journal.append([Warned(self._file.problem, "debts")])
        self._attempts: dict[str, _Attempt] = {}
        self._stopping: dict[str, float] = {}
        self._kept: set[str] = set()
        self._absent: set[str] = set()
        self._look_at = 0.0

    # --- before a launch

    async def clear_away(self, deployment: Deployment) -> bool:
        """Go one step towards a machine on which nothing displaced is in the way of a deployment.

        Returns:
            Whether that is so; else call again.

        Raises:
            CannotDisplace: a unit cannot be stopped, or could not be put back afterwards.
            OSError: the debt could not be written down; the unit was left alone.
        """
        wanted = to_clear_away(self._journal.state, self._displaced, deployment)
        if not wanted:
            return True
        if not self._is_time():
            return False
        try:
            return all([await self._clear_one(one) for one in wanted])
        except UnitProblem as problem:
            raise CannotDisplace(_advice(str(problem))) from problem

    async def _clear_one(self, one: Displaced) -> bool:
        self._attempts.pop(one.unit, None)
        record = self._record(one.unit)
        if record is None:
            return await self._take(one)
        manager = self._manager(record)
        seen = await manager.look(one.unit)
        if record.secret and seen.up:
            # The agent died before it wrote the file: what the journal holds would not make it again.
            self._journal.append([DebtSettled(one.unit, _UNTOUCHED)])
            return False
        if one.unit not in self._file.records:
            # The agent died between the journal and the file: nothing is stopped that does not stand in both.
            self._file.write(one.unit, record)
        running = await self._active(manager, seen.triggered_by)
        if not manager.is_guarded(one.unit):
            await manager.guard(one.unit)
        for trigger in running:
            await manager.stop(trigger)
        if seen.up:
            await manager.stop(one.unit)
        left = processes_of(record.control_group)
        if seen.down and not running and not left:
            self._stopping.pop(one.unit, None)
            if seen.there and record.transient:
                await manager.forget_failure(one.unit)
            return True
        deadline = self._stopping.setdefault(one.unit, self._now() + _STOP_DEADLINE)
        if self._now() > deadline:
            del self._stopping[one.unit]
            raise CannotDisplace(_advice(f"{one.unit} did not stop in {_STOP_DEADLINE:.0f} s: {_who(seen, left)}"))
        return False

    async def _take(self, one: Displaced) -> bool:
        """Write a unit down, if there is anything to stop; whether there is nothing."""
        if not one.unit.endswith(_KINDS):
            raise CannotDisplace(_advice(f"{one.unit} could not be put back: only {', '.join(_KINDS)} can"))
        manager, seen = await self._find(one.unit)
        if manager is None or not seen.there:
            if one.unit not in self._absent:
                self._absent.add(one.unit)
                text = f"displace: there is no unit {one.unit} on this host, of the system or of this account"
                self._journal.append([Warned(text, one.unit)])
            return True
        if seen.active == "deactivating":
            return False
        triggers = await self._active(manager, seen.triggered_by)
        if not seen.up and not triggers:
            return True
        record = await self._described(manager, seen, triggers)
        self._journal.append([DebtTaken(one.unit, _name(record), record.for_journal(), self._boot)])
        self._file.write(one.unit, record)
        return False

    async def _described(self, manager: Systemd, seen: UnitState, triggers: tuple[str, ...]) -> DebtRecord:
        """A unit as it is, with all that it takes to put it back; refused where that is not to be had."""
        if not manager.may_change:
            raise CannotDisplace(
                _advice(f"{seen.unit} is a unit of the system, and this account may not stop it: connect as root")
            )
        if seen.stale:
            raise CannotDisplace(
                f"the file of {seen.unit} was changed after it was started, so that it would come back as another one: "
                "`systemctl daemon-reload` and restart it, or restore the file; then resume"
            )
        record = DebtRecord(
            unit=seen.unit,
            user=manager.user,
            was_up=seen.up,
            invocation=seen.invocation,
            boot=self._boot,
            taken=self._clock.now(),
            definition=hashed(await manager.definition(seen.unit)),
            triggers=triggers,
            transient=seen.transient,
            control_group=seen.control_group,
        )
        if seen.transient:
            settings, command = manager.transient_settings(seen), await manager.command(seen.unit)
            await manager.try_transient(seen.unit, settings, command)
            record = replace(record, settings=settings, command=command)
        return replace(record, served=await find_served(processes_of(seen.control_group)))

    # --- afterwards

    async def put_back(self) -> bool:
        """Go one step in settling the debts that are due.

        Returns:
            Whether nothing is under way any more: what is left then is not due, or could not be put back.

        Raises:
            OSError: it could not be written down.
        """
        await self._strike_out_settled()
        state = self._journal.state
        self._kept -= {name for name, debt in state.debts.items() if debt.asked}
        due = due_back(state, self._displaced, self._boot)
        self._attempts = {name: one for name, one in self._attempts.items() if name in due}
        if not due:
            return True
        if self._is_time(_LOOKS_AT_KEPT_APART if self._kept.issuperset(due) else _LOOKS_APART):
            for name in due:
                await self._put_back_one(name)
        return self._kept.issuperset(due_back(self._journal.state, self._displaced, self._boot))

    @property
    def busy(self) -> bool:
        """Whether `put_back` has something to do."""
        due = due_back(self._journal.state, self._displaced, self._boot)
        return not self._kept.issuperset(due) or any(self._journal.state.debts[name].asked for name in due)

    async def _put_back_one(self, name: str) -> None:
        try:
            how = await self._step(name, self._required(name))
        except (_Kept, UnitProblem) as problem:
            self._attempts.pop(name, None)
            if name not in self._kept:
                self._kept.add(name)
                logger.warning("%s is not put back: %s", name, problem)
                self._journal.append([DebtKept(name, str(problem))])
            return
        if how is not None:
            self._attempts.pop(name, None)
            self._kept.discard(name)
            self._journal.append([DebtSettled(name, how)])
            self._file.remove(name)

    async def _step(self, name: str, record: DebtRecord) -> str | None:
        """One step for one unit; how it was settled, or None while it is not.

        Raises:
            _Kept, UnitProblem: it is not put back.
        """
        manager = self._manager(record)
        seen = await manager.look(name)
        attempt = self._attempts.get(name)
        if attempt is not None:
            return await self._watched(manager, record, seen, attempt)
        if name in self._kept and not seen.up:
            return None
        untouched = seen.up and seen.invocation == record.invocation
        if seen.active == "deactivating" or (untouched and seen.job):
            if self._now() > self._stopping.setdefault(name, self._now() + _STOP_DEADLINE):
                raise _Kept(f"it is still {seen.active} after {_STOP_DEADLINE:.0f} s: look at it with systemctl status")
            return None
        self._stopping.pop(name, None)
        await self._start(manager, record, seen)
        if untouched:
            return _UNTOUCHED
        if not record.was_up:
            return f"it was down, and is; {', '.join(record.triggers)} may start it again"
        how = "came back after the reboot" if record.boot != self._boot else "was started by somebody else"
        self._attempts[name] = _Attempt(how if seen.up else "put back", self._now())
        return None

    async def _start(self, manager: Systemd, record: DebtRecord, seen: UnitState) -> None:
        """Let it start again, start it unless it runs, and what triggers it in the order that it needs."""
        await manager.unguard(record.unit)
        first = [one for one in record.triggers if one.endswith(_STARTING_FIRST)]
        for trigger in first:
            await manager.start(trigger)
        if record.was_up and not seen.up:
            if not record.transient:
                await manager.start(record.unit)
            elif record.secret:
                raise _Kept(f"debts.json is lost, and the journal keeps no secrets ({record.secret}): make it by hand")
            else:
                await manager.forget_failure(record.unit)
                await manager.run_transient(record.unit, record.settings, record.command)
        for trigger in (one for one in record.triggers if one not in first):
            await manager.start(trigger)

    async def _watched(self, manager: Systemd, record: DebtRecord, seen: UnitState, attempt: _Attempt) -> str | None:
        """Whether a unit that was started is back: up for long enough, the same as before, and answering."""
        now = self._now()
        if seen.job and not seen.up:
            return None
        died = not seen.up or seen.sub == "auto-restart"
        if attempt.up_since is not None and seen.invocation != attempt.invocation:
            died = True
        if died:
            age = now - (attempt.up_since if attempt.up_since is not None else attempt.began)
            raise _Kept(f"it ended {age:.0f} s after its start ({seen.result}, exit status {seen.status or 'unknown'})")
        if seen.active != "active":
            self._give_up_after(self._patience.answer, attempt, f"it is still {seen.active} ({seen.sub})")
            return None
        if attempt.up_since is None:
            attempt.up_since, attempt.invocation = now, seen.invocation
        if now - attempt.up_since < self._patience.alive:
            return None
        changed = differences(record.definition, hashed(await manager.definition(record.unit)))
        if changed:
            raise _Kept(f"it runs, but not as before: {', '.join(changed)} changed; waive it if that is meant")
        if record.served is not None and not await answers(record.served):
            self._give_up_after(self._patience.answer, attempt, f"it runs, but {record.served.url} does not answer")
            return None
        asked = f", {record.served.url} answered" if record.served is not None else ""
        return f"{attempt.how}: active for {now - attempt.up_since:.0f} s{asked}"

    def _give_up_after(self, seconds: float, attempt: _Attempt, why: str) -> None:
        if self._now() - attempt.began > seconds:
            raise _Kept(f"{why} after {seconds:.0f} s")

    async def _strike_out_settled(self) -> None:
        """Records of debts that the journal does not know any more: settled, or waived, which ends the holding back."""
        for name in [one for one in self._file.records if one not in self._journal.state.debts]:
            record = self._file.records[name]
            try:
                await self._manager(record).unguard(name)
            except UnitProblem as problem:
                self._journal.append([Warned(str(problem), name)])
            self._file.remove(name)

    # --- what is known

    def _record(self, name: str) -> DebtRecord | None:
        """What is written about a debt: in the file, else in the journal; None where it is no debt, or lost."""
        debt = self._journal.state.debts.get(name)
        if debt is None:
            return None
        try:
            told = record_from_json(debt.record)
        except ValueError:
            return self._file.records.get(name)
        written = self._file.records.get(name)
        return written if written is not None and written.taken == told.taken else told

    def _required(self, name: str) -> DebtRecord:
        record = self._record(name)
        if record is None:
            raise _Kept("how it was is not written anywhere: start it by hand, then waive it")
        return record

    def _manager(self, record: DebtRecord) -> Systemd:
        return self._managers[1 if record.user else 0]

    async def _find(self, unit: str) -> tuple[Systemd | None, UnitState]:
        """The manager that has a unit, the one where it runs before the other.

        Raises:
            UnitProblem: no manager can be asked.
        """
        found: list[tuple[Systemd, UnitState]] = []
        problems: list[UnitProblem] = []
        for manager in self._managers:
            try:
                found.append((manager, await manager.look(unit)))
            except UnitProblem as problem:
                problems.append(problem)
        if not found:
            raise problems[0]
        there = [pair for pair in found if pair[1].there]
        if not there:
            return None, found[0][1]
        return next((pair for pair in there if pair[1].up), there[0])

    async def _active(self, manager: Systemd, triggers: tuple[str, ...]) -> tuple[str, ...]:
        """Those of a unit's triggers that are to be stopped. A transient timer would vanish: it fires in vain."""
        found = [await manager.look(one) for one in triggers]
        for one in found:
            if one.up and one.transient and one.unit.endswith(_STARTING_FIRST):
                raise UnitProblem(f"{one.unit} is transient and could not be put back: stop it by hand")
        return tuple(one.unit for one in found if one.up and not one.transient)

    def _now(self) -> float:
        return self._clock.monotonic()

    def _is_time(self, apart: float = _LOOKS_APART) -> bool:
        """Whether to look again: conductors ask five times a second."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return False
        self._look_at = now + apart
        return True


def _name(record: DebtRecord) -> str:
    return f"{record.unit} (of the account)" if record.user else record.unit


def _advice(problem: str) -> str:
    return f"{problem}; or stop it yourself, `ddconsole debts RUN --waive UNIT`, then resume"


def _who(seen: UnitState, left: set[int]) -> str:
    """What is left of a unit, for people."""
    known = [identify(pid) for pid in sorted(left)[:4]]
    return "; ".join(describe(one) for one in known if one is not None) or f"it is {seen.active} ({seen.sub})"
