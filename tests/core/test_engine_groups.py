"""Engine or model changed under the sweep: what is said, and figures of two groups are never mixed."""

from journals import launched, small_run

from ddconsole.core import events as ev
from ddconsole.core.engine_identity import engine_changes
from ddconsole.core.engine_notes import engine_notes
from ddconsole.core.row_text import baselines, cell_figures, row_text

OLD = {"build": {"version": "0.5.9", "commit": "a" * 40}, "packages": {"torch": "2.9.0"}, "model": {"m.gguf": "1 a"}}


def measured(cell: str, attempt: int, launch: int, rate: float, round_: int = 1) -> tuple[ev.Event, ...]:
    figures = {"output_rate": rate, "requests": 1, "succeeded": 1}
    return (
        ev.AttemptStarted(cell, attempt, launch, round_, 0),
        ev.AttemptDone(cell, attempt, launch, "s", "f", figures),
    )


def test_changes_are_said_in_words() -> None:
    new = {
        "build": {"version": "0.5.10", "commit": "b" * 40, "changes": "hash", "dirty": True},
        "packages": {"torch": "2.9.1", "triton": "3.5"},
        "model": {"m.gguf": "1 b"},
        "environment": {"NCCL_P2P_LEVEL": "SYS"},
    }
    assert engine_changes(OLD, new) == (
        "version 0.5.9 → 0.5.10",
        f"commit {'a' * 12}… → {'b' * 12}…",
        "uncommitted changes are there now",
        "package torch 2.9.0 → 2.9.1",
        "package triton none → 3.5",
        "model file m.gguf changed",
        "and 1 more",
    )
    assert engine_changes(OLD, OLD) == ()


def test_what_could_not_be_asked_is_no_change() -> None:
    assert engine_changes(OLD, {"build": {}, "packages": {}, "model": OLD["model"]}) == ()


def test_a_model_that_is_gone_is_the_gates_business_and_no_other_model() -> None:
    assert engine_changes(OLD, {"model": {}}) == ()


def test_rounds_on_two_engines_are_not_averaged() -> None:
    state = small_run(
        ev.EngineSeen(OLD),
        *launched(1),
        *measured("c001", 1, 1, 10.0),
        ev.LaunchGone(1),
        ev.EngineSeen({}, ("version 0.5.9 → 0.5.10",)),
        *launched(2),
        *measured("c001", 2, 2, 30.0, round_=2),
        rounds=2,
    )
    row = state.cells["c001"]
    figures = cell_figures(row)
    assert figures is not None
    assert (figures.output_rate, figures.attempts) == (30.0, 1)
    known = baselines(state)
    assert row_text(row, state, known, now=0.0).rate == "!30.0"
    assert engine_notes(row, state, known) == [
        "1 round in no figure: engine, model or configuration changed after it (R measures it again)"
    ]


def test_a_method_is_not_compared_with_a_baseline_of_another_engine() -> None:
    before = (*launched(1), *measured("c001", 1, 1, 10.0), ev.LaunchGone(1))
    method = (*launched(2, "d02"), *measured("c003", 1, 2, 30.0))
    same = small_run(ev.EngineSeen(OLD), *before, *method)
    assert row_text(same.cells["c003"], same, baselines(same), now=0.0).speed_up == "3.00"
    other = small_run(ev.EngineSeen(OLD), *before, ev.EngineSeen({}, ("version",)), *method)
    known = baselines(other)
    assert row_text(other.cells["c003"], other, known, now=0.0).speed_up == "≠build"
    assert "another engine" in engine_notes(other.cells["c003"], other, known)[0]
