"""Commands from this console to one run: which it may give, and that each takes effect at most once."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command, CommandAnswer, Seen
from ddconsole.link.client import AgentClient, AgentError, LinkLost
from ddconsole.link.stages import StageError

Answer = TypeVar("Answer")


class RunSteering:
    """Gives commands to a run, one after the other, and knows whether this console has control.

    A command carries the control epoch of the moment at which it was given. So one that waited for the link is refused
    if another console has taken control since, and is not given again by itself.

    Args:
        client: to the agent.
        run: the run's id.
        state: the run as it is known here.
        back_in_time: waits a few seconds for a lost link; whether it is up again.
    """

    def __init__(
        self,
        client: AgentClient,
        run: str,
        state: Callable[[], RunState],
        back_in_time: Callable[[], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._run = run
        self._state = state
        self._back_in_time = back_in_time
        self._granted = 0
        self._taking = asyncio.Lock()
        self._in_order = asyncio.Lock()
        self.one_controls: bool | None = None
        """Whether the agent knows who controls; None while it has not been asked."""

    def epoch(self) -> int:
        """The control epoch that this console holds; 0 where it has no control."""
        controller = self._state().controller
        known = controller.epoch if controller else 0
        if self._granted > known:
            return self._granted
        return known if controller and controller.console == self._client.identity.console else 0

    async def command(
        self,
        name: str,
        cells: Sequence[str],
        changes: Mapping[str, str | None],
        because: str,
        expected: Mapping[str, Seen],
    ) -> CommandAnswer:
        """Give one command. Control that nobody has is taken first; control that another has is a refusal.

        Raises:
            LinkLost: whether it took effect is not known.
        """
        command = replace(
            self._blank(name),
            cells=tuple(cells),
            changes=dict(changes),
            because=because,
            expected=dict(expected),
            expected_phase=self._state().phase_seq,
        )
        if await self._agent_knows_control():
            held = await self._hold()
            if isinstance(held, CommandAnswer):
                return held
            command = replace(command, epoch=held)
        async with self._in_order:
            return await self._deliver(command)

    async def take_control(self, shown: int | None) -> CommandAnswer:
        """Take control.

        Args:
            shown: the control epoch of whom the operator was shown and wants to take it from; None takes it only
                where it is nobody's.

        Raises:
            LinkLost: whether it took effect is not known.
        """
        if not await self._agent_knows_control():
            return CommandAnswer(taken=False, text="the agent is older than this console: every console may steer")
        async with self._taking:
            return await self._take(shown)

    def _blank(self, name: str) -> Command:
        me = self._client.identity
        return Command(uuid.uuid4().hex, name, me.by, console=me.console, where=me.where)

    async def _hold(self) -> int | CommandAnswer:
        async with self._taking:
            if not self.epoch():
                answer = await self._take(None)
                if not answer.taken:
                    return answer
            return self.epoch()

    async def _take(self, shown: int | None) -> CommandAnswer:
        blank = self._blank(st.ControlCommand.TAKE)
        answer = await self._deliver(replace(blank, epoch=shown or 0, take=shown is not None))
        if answer.taken:
            self._granted = max(self._granted, answer.epoch)
        return answer

    async def _agent_knows_control(self) -> bool:
        if self.one_controls is None:
            hello = await _as_lost_link(self._client.hello())
            self.one_controls = hello.one_controls
        return self.one_controls

    async def _deliver(self, command: Command) -> CommandAnswer:
        """Send it; once more with the same id when its answer was lost."""
        try:
            return await self._send(command)
        except LinkLost as lost:
            if await self._back_in_time():
                return await self._send(command)
            if command.id in self._state().commands:
                return CommandAnswer(True, f"{command.name} was taken, as the journal says", command.cells)
            raise LinkLost(lost.text, f"whether {command.name} was taken shows when the link is back") from lost

    async def _send(self, command: Command) -> CommandAnswer:
        try:
            return await _as_lost_link(self._client.command(self._run, command))
        except LinkLost:
            raise
        except AgentError as refused:
            return CommandAnswer(False, str(refused))


async def _as_lost_link(asked: Awaitable[Answer]) -> Answer:
    """Not to reach the agent is a lost link to who steers."""
    try:
        return await asked
    except StageError as problem:
        raise LinkLost(problem.text, problem.do) from problem
