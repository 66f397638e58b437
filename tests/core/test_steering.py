"""Two consoles and command lines on one run: who controls, what a late command may still do, and at most once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from journals import done, entries, launched, small_run, started

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.commands import decide
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import decode_line, encode_line
from ddconsole.core.preconditions import seen
from ddconsole.core.run_state import RunState
from ddconsole.core.steering import GONE_AFTER, control_epoch
from ddconsole.core.wire import Command, CommandAnswer, Watchers

ANN, BOB = "ann@laptop", "bob@desk"
HERE = Watchers(2, "a", controller_here=True, controller_age=1.0)
AWAY = Watchers(1, "a", controller_here=False, controller_age=GONE_AFTER + 1)
JUST_LEFT = Watchers(1, "a", controller_here=False, controller_age=2.0)


def take(console: str, by: str, epoch: int | None = None) -> Command:
    return Command(
        f"take-{console}-{epoch}", "take-control", by, console=console, epoch=epoch or 0, take=epoch is not None
    )


def pause(console: str, by: str, epoch: int) -> Command:
    return Command(f"pause-{console}-{epoch}", "pause", by, console=console, epoch=epoch)


def once(by: str, *, force: bool = False) -> Command:
    return Command(f"once-{by}-{force}", "pause", by, console=f"line-{by}", where="command line", once=True, take=force)


def give(state: RunState, command: Command, watchers: Watchers | None = None) -> tuple[RunState, CommandAnswer]:
    decision = decide(state, command, watchers)
    return then(state, *decision.events), decision.answer


def then(state: RunState, *events: ev.Event) -> RunState:
    return fold(entries(events, state.seq + 1, at=2000.0), state)


def ann_controls() -> RunState:
    state, answer = give(small_run(*launched()), take("a", ANN))
    assert (answer.taken, answer.epoch) == (True, 1)
    return state


def test_who_takes_control_first_has_it_without_being_asked() -> None:
    state = ann_controls()
    assert state.controller is not None
    assert (state.controller.by, state.controller.console, state.controller.epoch) == (ANN, "a", 1)
    state, answer = give(state, pause("a", ANN, 1))
    assert answer.taken
    assert state.phase is st.RunPhase.PAUSED


def test_a_console_without_control_is_refused_and_told_who_has_it_since_when() -> None:
    state = ann_controls()
    for watchers in (None, HERE, AWAY):
        decision = decide(state, pause("b", BOB, 1), watchers)
        assert decision.events == ()
        assert decision.answer.controller == state.controller
        assert ANN in decision.answer.text
        assert decide(state, take("b", BOB), watchers).answer.controller == state.controller


def test_control_taken_after_asking_leaves_the_first_console_without() -> None:
    state, answer = give(ann_controls(), take("b", BOB, 1), HERE)
    assert (answer.taken, answer.epoch) == (True, 2)
    late = decide(state, pause("a", ANN, 1), HERE)
    assert (late.events, late.answer.taken) == ((), False)
    assert late.answer.controller is not None
    assert late.answer.controller.by == BOB


def test_who_was_shown_another_controller_is_asked_again() -> None:
    state, _ = give(ann_controls(), take("b", BOB, 1))
    decision = decide(state, take("c", "eve@x", 1))
    assert decision.events == ()
    assert decision.answer.controller == state.controller
    assert "meanwhile" in decision.answer.text


def test_a_command_from_before_control_was_lost_and_taken_back_is_refused() -> None:
    state, _ = give(ann_controls(), take("b", BOB, 1))
    state, _ = give(state, take("a", ANN, 2))
    late = decide(state, pause("a", ANN, 1))
    assert (late.events, late.answer.taken) == ((), False)
    assert "was not done" in late.answer.text
    assert decide(state, pause("a", ANN, 3)).answer.taken


def test_a_closed_console_of_the_same_operator_is_followed_without_asking() -> None:
    state = ann_controls()
    assert not decide(state, take("a2", ANN), HERE).answer.taken
    assert not decide(state, take("a2", ANN), None).answer.taken
    assert decide(state, take("a2", ANN), JUST_LEFT).answer.taken
    assert not decide(state, take("b", BOB), JUST_LEFT).answer.taken


def test_a_command_line_steers_where_it_takes_control_from_nobody() -> None:
    nobody, answer = give(small_run(*launched()), once(BOB))
    assert answer.taken
    assert nobody.controller is None
    same, answer = give(ann_controls(), once(ANN), HERE)
    assert answer.taken
    assert control_epoch(same) == 1
    assert not decide(ann_controls(), once(BOB), HERE).answer.taken
    assert not decide(ann_controls(), once(BOB), JUST_LEFT).answer.taken
    assert not decide(ann_controls(), once(BOB), None).answer.taken
    for command, watchers in ((once(BOB), AWAY), (once(BOB, force=True), HERE)):
        state, answer = give(ann_controls(), command, watchers)
        assert answer.taken
        assert state.controller is not None
        assert (state.controller.who(), state.controller.epoch) == ("bob@desk (command line)", 2)
        assert not decide(state, pause("a", ANN, 1)).answer.taken


def test_consoles_of_before_steer_until_another_has_control() -> None:
    old = Command("1", "pause", ANN)
    assert decide(small_run(*launched()), old).answer.taken
    assert not decide(ann_controls(), old).answer.taken


def test_control_stands_in_the_journal_and_old_journals_have_none() -> None:
    event = ev.ControlTaken(ANN, "a", 3, "pts/1")
    entry = ev.Entry(1, 9, 5.0, event)
    assert decode_line(encode_line(entry)) == entry
    assert ev.event_from_json({"type": "ControlTaken", "by": ANN, "console": "a", "epoch": 3}) == replace(
        event, where=""
    )
    assert ev.event_from_json({"type": "CommandTaken", "id": "1", "name": "stop", "cells": [], "by": ANN}) is not None
    state = small_run()
    assert (state.controller, control_epoch(state)) == (None, 0)


def test_an_epoch_never_goes_back() -> None:
    state = then(ann_controls(), ev.ControlTaken(BOB, "b", 1))
    assert state.controller is not None
    assert state.controller.by == ANN
    assert state.impossible_events == 1


def stop(state: RunState, cell: str, as_seen_in: RunState) -> Command:
    return Command("stop", "stop", ANN, (cell,), console="a", epoch=1, expected={cell: seen(as_seen_in.cells[cell])})


def test_a_late_stop_does_not_stop_the_next_attempt() -> None:
    before = then(ann_controls(), started("c001"))
    assert decide(before, stop(before, "c001", before)).answer.taken
    after = then(before, done("c001"), ev.CellsRetried(("c001",), ANN), started("c001", 2))
    late = decide(after, stop(after, "c001", before))
    assert late.events == ()
    assert "attempt 2 of c001 has begun meanwhile" in late.answer.text


def test_an_edit_of_a_cell_that_another_edited_is_refused_with_what_changed() -> None:
    before = ann_controls()
    expected = {"c001": seen(before.cells["c001"])}
    edit = Command("1", "edit", BOB, ("c001",), {"max_tokens": "128"}, once=True, console="l", take=True)
    edited, answer = give(before, edit)
    assert answer.taken
    mine = Command("2", "edit", ANN, ("c001",), {"max_tokens": "32"}, console="a", epoch=3, expected=expected)
    edited, _ = give(edited, take("a", ANN, 2))
    late = decide(edited, mine)
    assert late.events == ()
    assert "c001 was edited meanwhile by bob@desk (max_tokens = 128)" in late.answer.text


def test_cells_that_moved_on_are_left_out_and_named() -> None:
    before = ann_controls()
    expected = {name: seen(row) for name, row in before.cells.items()}
    after = then(before, started("c001"))
    skip = Command("1", "skip", ANN, tuple(before.cells), console="a", epoch=1, expected=expected)
    decision = decide(after, skip)
    assert decision.answer.cells == ("c002", "c003", "c004")
    assert "1 left as it is: attempt 1 of c001 has begun meanwhile and runs" in decision.answer.text


def test_only_a_pause_that_was_seen_is_ended() -> None:
    seen_pause = then(ann_controls(), ev.RunPaused(ANN, "asked"))
    resume = Command("1", "resume", ANN, console="a", epoch=1, expected_phase=seen_pause.phase_seq)
    assert decide(seen_pause, resume).answer.taken
    other = then(seen_pause, ev.RunResumed(ANN), ev.RunPaused("ddconsole", "GPU 3 is gone"))
    late = decide(other, resume)
    assert late.events == ()
    assert "GPU 3 is gone" in late.answer.text


def test_an_answer_is_given_again_and_an_id_is_not_used_twice() -> None:
    state = ann_controls()
    first = Command("same", "duplicate", ANN, ("c001",), console="a", epoch=1)
    state, answer = give(state, first)
    again = decide(state, first)
    assert again.events == ()
    assert (again.answer.text, again.answer.cells) == (answer.text, answer.cells)
    other = decide(state, replace(first, name="skip"))
    assert (other.events, other.answer.taken) == ((), False)


STEERING = ["stop", "skip", "retry", "duplicate", "pause", "resume", "start", "duplicate", "duplicate"]
CONSOLES = some.sampled_from("aab")
PLACES = some.integers(0, 50)
KNOWING = some.sampled_from([True, True, True, False])
GIVE = some.tuples(some.just("give"), CONSOLES, some.sampled_from(STEERING), some.integers(1, 3), KNOWING)
TAKE = some.tuples(some.just("give"), CONSOLES, some.just("take-control"), some.integers(1, 2), KNOWING)
ARRIVE = some.tuples(some.just("arrive"), PLACES, some.booleans())
LOSE = some.tuples(some.just("lose"), PLACES)
GO_ON = some.tuples(some.just("go on"), some.sampled_from(["c001", "c002"]))
STEPS = some.one_of(GIVE, GIVE, GIVE, TAKE, *[ARRIVE] * 6, LOSE, GO_ON)


class TwoConsoles(RuleBasedStateMachine):
    """Consoles give commands over links that lose, double, delay and reorder them; one agent decides."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[bytes] = []
        self.state = self.first = small_run(*launched())
        self.numbers = 0
        self.on_the_way: list[Command] = []
        self.known: dict[str, RunState] = {}
        self.effects: dict[str, int] = {}

    @initialize()
    def ann_begins(self) -> None:
        self._write(decide(self.state, take("a", ANN)).events)
        self.known = {"a": self.state, "b": self.state}

    @rule(steps=some.lists(STEPS, min_size=60, max_size=200))
    def a_while_passes(self, steps: list[tuple[Any, ...]]) -> None:
        for step, *values in steps:
            match step:
                case "give":
                    self._give(*values)
                case "arrive" if self.on_the_way:
                    place = values[0] % len(self.on_the_way)
                    self._arrive(self.on_the_way[place] if values[1] else self.on_the_way.pop(place))
                case "lose" if self.on_the_way:
                    self.on_the_way.pop(values[0] % len(self.on_the_way))
                case "go on":
                    self._go_on(values[0])
                case _:
                    pass

    @rule()
    def the_agent_starts_again(self) -> None:
        self.state = fold([decode_line(line) for line in self.journal], self.first)

    def _give(self, console: str, name: str, copies: int, knowing: bool) -> None:
        """`knowing`: the console has heard of everything; else it steers by what it knew before."""
        self.numbers += 1
        if knowing:
            self.known[console] = self.state
        known, by = self.known[console], ANN if console == "a" else BOB
        epoch = control_epoch(known)
        cells = (f"c00{self.numbers % 2 + 1}",) if name in set(st.CellCommand) else ()
        command = Command(f"{self.numbers}", name, by, cells, console=console, epoch=epoch, take=True)
        expected = {one: seen(known.cells[one]) for one in cells}
        self.on_the_way += [replace(command, expected=expected, expected_phase=known.phase_seq)] * copies

    def _arrive(self, command: Command) -> None:
        before = self.state
        decision = decide(before, command, HERE)
        self._write(decision.events)
        if not decision.events:
            return
        self.effects[command.id] = self.effects.get(command.id, 0) + 1
        if command.name != "take-control":
            assert before.controller is not None
            holder = (before.controller.console, before.controller.epoch)
            assert (command.console, command.epoch) == holder, "a stale command took effect"
        for name, expected in command.expected.items():
            assert seen(before.cells[name]) == expected, "a late command took effect"
        for event in decision.events:
            if isinstance(event, ev.CellStopRequested):
                assert event.attempt == command.expected[event.cell].attempt

    def _go_on(self, cell: str) -> None:
        """The sweep does: what runs is done, or the cell begins."""
        running = self.state.running_cell()
        row = self.state.cells[cell]
        if running is not None and isinstance(running.state, st.Running):
            self._write([done(running.cell.id, running.state.attempt)])
        elif row.state.phase is st.CellPhase.PENDING:
            self._write([started(cell, len(row.attempts) + 1)])

    def _write(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            line = encode_line(ev.Entry(1, self.state.seq + 1, 2000.0 + self.state.seq, event))
            self.journal.append(line)
            self.state = fold([decode_line(line)], self.state)

    @invariant()
    def each_id_takes_effect_at_most_once(self) -> None:
        assert all(number == 1 for number in self.effects.values())
        taken = [one.event.id for line in self.journal if isinstance((one := decode_line(line)).event, ev.CommandTaken)]
        assert len(taken) == len(set(taken))

    @invariant()
    def epochs_only_grow(self) -> None:
        epochs = [
            one.event.epoch for line in self.journal if isinstance((one := decode_line(line)).event, ev.ControlTaken)
        ]
        assert epochs == list(range(1, len(epochs) + 1))
        assert self.state.impossible_events == 0


TestTwoConsoles = TwoConsoles.TestCase
TestTwoConsoles.settings = settings(max_examples=60, stateful_step_count=4, deadline=None)
