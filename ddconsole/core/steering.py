"""Who controls a run: any number of consoles watch it, one controls it.

The control epoch counts up with each console that takes control, and every command carries the epoch that its sender
holds. So a console that was asleep, or a command that was late, changes nothing once another console has taken over.

A command line that does not stay needs no control where nobody has it, or where the console that has it is of the same
user on the same machine. It takes control where that console has been silent for `GONE_AFTER`, or where it was told
to.
"""

from dataclasses import dataclass

from ddconsole.core import events as ev
from ddconsole.core.run_state import Controller, RunState
from ddconsole.core.wire import Command, CommandAnswer, Watchers

GONE_AFTER = 60.0
"""Real seconds without a word after which a console no longer keeps a command line from steering."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The command may go on; `events` come before its own."""

    events: tuple[ev.Event, ...] = ()


def control_epoch(state: RunState) -> int:
    """The epoch of who controls; 0 where nobody ever did."""
    return state.controller.epoch if state.controller else 0


def may_take_unasked(controller: Controller | None, by: str, watchers: Watchers | None) -> bool:
    """Whether taking control takes it from nobody: no console has it, or one of the same operator that is closed."""
    if controller is None:
        return True
    return controller.by == by and watchers is not None and not watchers.controller_here


def is_gone(watchers: Watchers | None) -> bool:
    """Whether the console that has control has been silent for so long that nobody sits before it."""
    if watchers is None or watchers.controller_here:
        return False
    return watchers.controller_age is not None and watchers.controller_age > GONE_AFTER


def take(state: RunState, command: Command, watchers: Watchers | None) -> tuple[tuple[ev.Event, ...], CommandAnswer]:
    """What `take-control` comes to."""
    controller = state.controller
    if not command.console:
        return (), CommandAnswer(taken=False, text="control is taken by a console that names itself; this one is older")
    if controller is not None and controller.console == command.console:
        return (), CommandAnswer(taken=True, text="this console has control already", epoch=controller.epoch)
    if controller is not None and command.take and command.epoch != controller.epoch:
        return (), _refused(controller, f"{controller.who()} has taken control meanwhile")
    if not command.take and not may_take_unasked(controller, command.by, watchers):
        assert controller is not None
        return (), _refused(controller, f"{controller.who()} has control")
    taken = _taken(state, command)
    return (taken,), CommandAnswer(taken=True, text="this console has control now", epoch=taken.epoch)


def fence(state: RunState, command: Command, watchers: Watchers | None) -> Grant | CommandAnswer:
    """Whether a command may change the run, or the refusal that names who has control."""
    controller = state.controller
    if not command.console:
        # Consoles of before control was there: they steer as long as no other console does.
        if controller is None:
            return Grant()
        text = f"{controller.who()} has control, and this console is too old to take it: {command.name} was not done"
        return _refused(controller, text)
    if command.once:
        return _fence_once(state, command, watchers)
    if controller is None:
        return CommandAnswer(taken=False, text=f"{command.name}: take control first")
    if controller.console != command.console:
        return _refused(controller, f"{controller.who()} has control: {command.name} was not done")
    if controller.epoch != command.epoch:
        text = f"{command.name} is from before this console lost control and took it again: it was not done"
        return _refused(controller, text)
    return Grant()


def _fence_once(state: RunState, command: Command, watchers: Watchers | None) -> Grant | CommandAnswer:
    controller = state.controller
    if controller is None or controller.by == command.by:
        return Grant()
    if command.take or is_gone(watchers):
        return Grant((_taken(state, command),))
    return _refused(controller, f"{controller.who()} has control: {command.name} was not done")


def _taken(state: RunState, command: Command) -> ev.ControlTaken:
    return ev.ControlTaken(command.by, command.console, control_epoch(state) + 1, command.where)


def _refused(controller: Controller, text: str) -> CommandAnswer:
    return CommandAnswer(taken=False, text=text, controller=controller)
