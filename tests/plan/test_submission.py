"""What is sent to the host, and what the operator is told before it is."""

from ddconsole.planfile.placeholders import resolve_placeholders
from ddconsole.planfile.plan_file import find_plan, load_plan
from ddconsole.planfile.submission import Rehearsal, plan_sweep, submission_of


def test_the_host_never_reads_a_file_of_the_operators() -> None:
    loaded = load_plan(find_plan("demo"))
    sent = submission_of(plan_sweep(loaded, resolve_placeholders(loaded.plan)), "demo-1", "local")
    assert sent.plan_text == loaded.text
    assert set(sent.texts["prompts"]) == {"five"}
    assert set(sent.texts["scripts"]) == {"cli-calculator"}
    assert [cell["id"] for cell in sent.cells] == [f"c{number:03d}" for number in range(1, 11)]
    assert sent.rehearsal is None


def test_a_rehearsal_is_marked_and_starts_its_own_server() -> None:
    loaded = load_plan(find_plan("ct200-ddtree"))
    sent = submission_of(plan_sweep(loaded, loaded.plan), "r-1", "ct200", Rehearsal(("simulated",), 60.0))
    assert sent.host == "local"
    assert sent.engine["command"] == ["simulated"]
    assert sent.rehearsal == {"scale": 60.0, "faults": []}
    assert sent.displace == ()


def test_a_rehearsal_has_only_the_deadline_that_was_asked_for() -> None:
    """The plan's time of day comes within minutes on a fast clock, and would drop most of the sweep."""
    loaded = load_plan(find_plan("ct200-ddtree"))
    sweep = plan_sweep(loaded, loaded.plan)
    assert submission_of(sweep, "r-1", "ct200").protocol["until"] == "07:00"
    assert submission_of(sweep, "r-1", "ct200", Rehearsal(("simulated",), 60.0)).protocol["until"] is None
    asked = Rehearsal(("simulated",), 60.0, until="06:30")
    assert submission_of(sweep, "r-1", "ct200", asked).protocol["until"] == "06:30"
