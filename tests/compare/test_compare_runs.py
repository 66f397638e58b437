import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.cli import main
from ddconsole.compare.comparison import Comparison, compare
from ddconsole.compare.differences import Verdict
from ddconsole.compare.facts import NO_FILES, RunFiles
from ddconsole.compare.read import compare_folders
from ddconsole.compare.side import Side, side_of
from ddconsole.compare.text import ratio_text
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.statistics import Estimate, Sureness
from screens.compare_text import comparison_page
from screens.spans import plain
from tests.compare.changed_runs import Recipe, made, points
from tests.report.sample_runs import SampleRun

FIRST = Recipe()
CHANGED = Recipe(
    run="second",
    args={"attention-backend": "flashinfer"},
    driver="580.105.08",
    slower={"ddtree-b15": 0.95},
    noise=1,
    plan_sha256="6f" * 32,
)


@pytest.fixture(scope="module")
def first() -> SampleRun:
    return made(FIRST)


@pytest.fixture(scope="module")
def changed() -> SampleRun:
    return made(CHANGED)


def side(sample: SampleRun, files: RunFiles = NO_FILES) -> Side:
    return side_of(sample.state, attempts_in_memory(sample.attempts), files)


def compared(first: SampleRun, second: SampleRun) -> Comparison:
    return compare(side(first), side(second))


def labels(comparison: Comparison, verdict: Verdict, figure: str = "output_rate") -> set[str]:
    return {one.label for one in comparison.compared(figure).of(verdict)}


def test_a_flag_a_driver_and_a_method_five_percent_slower_are_found_and_nothing_else(
    first: SampleRun, changed: SampleRun
) -> None:
    comparison = compared(first, changed)
    found = [(one.about, one.name, one.before, one.after, one.where, one.note) for one in comparison.changes.found]
    assert found == [
        ("environment", "driver", "580.95.05", "580.105.08", "", ""),
        ("server", "attention_backend", "triton", "flashinfer", "all servers", ""),
    ]
    slower = {f"ddtree-b15 TP{size} {point.label}" for size in (1, 4) for point in points("five")}
    certain, perhaps = labels(comparison, Verdict.REGRESSED), labels(comparison, Verdict.PERHAPS_WORSE)
    assert certain | perhaps == slower
    assert len(certain) == 7
    for verdict in (Verdict.IMPROVED, Verdict.PERHAPS_BETTER):
        assert labels(comparison, verdict) == set()
    rates = comparison.compared("output_rate")
    assert len(rates.of(Verdict.UNCHANGED)) == len(rates.differences) - len(slower) == 16
    for server in rates.servers:
        low, high = server.ratio.low, server.ratio.high
        assert low is not None
        assert high is not None
        truth = 0.95 if server.method == "ddtree-b15" else 1.0
        assert low <= truth <= high
        assert server.verdict is (Verdict.REGRESSED if truth < 1 else Verdict.UNCHANGED)
        assert server.improved == 0
    for figure in ("ttft", "acceptance"):
        assert len(labels(comparison, Verdict.UNCHANGED, figure)) == len(comparison.compared(figure).differences)
        assert {server.verdict for server in comparison.compared(figure).servers} == {Verdict.UNCHANGED}
    assert comparison.is_worse("output_rate")
    assert not comparison.is_worse("ttft")


def test_a_run_against_itself_differs_in_nothing(first: SampleRun) -> None:
    comparison = compared(first, first)
    assert comparison.changes.found == ()
    assert comparison.changes.one_sided == ()
    assert comparison.one_sided == ()
    for one in comparison.figures:
        assert {cell.verdict for cell in one.differences} <= {Verdict.UNCHANGED}
        assert {cell.ratio.value for cell in one.differences} <= {1.0}
    assert not comparison.is_worse("output_rate")


def test_the_other_way_round_it_is_an_improvement(first: SampleRun, changed: SampleRun) -> None:
    comparison = compared(changed, first)
    assert labels(comparison, Verdict.REGRESSED) == set()
    assert len(labels(comparison, Verdict.IMPROVED) | labels(comparison, Verdict.PERHAPS_BETTER)) == 8
    assert not comparison.is_worse("output_rate")


def test_noise_alone_is_no_change(first: SampleRun) -> None:
    for noise in range(2, 6):
        comparison = compared(first, made(replace(FIRST, noise=noise)))
        for one in comparison.figures:
            told = {cell.verdict for cell in one.differences} | {server.verdict for server in one.servers}
            assert told == {Verdict.UNCHANGED}, (noise, one.figure.id)


def test_with_one_launch_nothing_is_certain(first: SampleRun) -> None:
    one = made(replace(FIRST, launches=1))
    other = made(replace(CHANGED, launches=1))
    comparison = compared(one, other)
    assert labels(comparison, Verdict.REGRESSED) == set()
    assert labels(comparison, Verdict.PERHAPS_WORSE) >= {f"ddtree-b15 TP1 {point.label}" for point in points("five")}
    assert not comparison.is_worse("output_rate")
    assert {cell.p for cell in comparison.compared("output_rate").differences} == {None}


def test_what_one_launch_cannot_tell_is_not_called_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(replace(FIRST, launches=1)).write(tmp_path / "first")
    slower = dict.fromkeys(FIRST.methods, 0.62)
    second = made(replace(FIRST, run="second", launches=1, slower=slower)).write(tmp_path / "second")
    rates = compare_folders(first, second)[0].compared("server_rate")
    assert {one.verdict for one in rates.differences} | {one.verdict for one in rates.servers} == {
        Verdict.CANNOT_BE_TOLD
    }
    assert main(["compare", str(first), str(second), "--figure", "server_rate", "--latex", str(tmp_path / "tex")]) == 0
    out = capsys.readouterr().out
    assert "  cannot be told: 24; 1 launch, an interval needs 3" in out
    assert "  unchanged: 0" in out
    assert "0 of 24 are: within" in (tmp_path / "tex" / "compare.tex").read_text()
    page = [
        plain(one) for one in comparison_page(compare_folders(first, second)[0], "server_rate", 80, everything=True)
    ]
    assert len([one for one in page if one.startswith(" ? ")]) == 24 + 6
    assert not [one for one in page if one.startswith(" = ")]


def test_at_80_columns_cells_of_the_screen_stay_apart() -> None:
    recipe = Recipe(methods=("ar", "ddtree-b16", "ddtree-b32"))
    other = replace(recipe, run="second", slower=dict.fromkeys(recipe.methods, 0.9), noise=1)
    page = comparison_page(compared(made(recipe), made(other)), "output_rate", 80, everything=True)
    cells = [one[1][0].strip() for one in page if len(one) == 5]
    assert len(cells) == len(set(cells)) == 24
    assert "ddtree-b16 TP4 con… c2 512" in cells
    assert max(map(len, cells)) <= 26


def test_an_argument_that_the_plan_does_not_name_is_told_as_such(first: SampleRun) -> None:
    comparison = compared(first, made(replace(FIRST, effective={"max_running_requests": 4}, noise=2)))
    (change,) = comparison.changes.found
    assert (change.name, change.before, change.after) == ("max_running_requests", "8", "4")
    assert change.note == "not by the plan"


def test_what_follows_from_a_flag_or_a_size_is_told_once_under_it(first: SampleRun) -> None:
    before = made(replace(FIRST, args={"mem-fraction-static": 0.8}, effective={"mem_fraction_static": 0.8}))
    told = {"mem_fraction_static": 0.7, "max_total_num_tokens": 310_000}
    after = made(replace(FIRST, args={"mem-fraction-static": 0.7}, effective=told, noise=2))
    (change,) = compared(before, after).changes.found
    assert (change.name, change.before, change.after, change.note) == ("mem_fraction_static", "0.8", "0.7", "")
    (follows,) = change.follows
    assert (follows.name, follows.before, follows.after) == ("max_total_num_tokens", "400007 to 400126", "310000")

    (change,) = compared(first, made(replace(FIRST, size=2, noise=2))).changes.found
    assert (change.about, change.name, change.before, change.after) == ("plan", "sized for", "8", "2")
    assert [(one.name, one.before, one.after, one.where) for one in change.follows] == [
        ("max_running_requests", "8", "2", "all servers")
    ]


def test_what_a_cache_holds_follows_from_nothing_where_the_plan_is_the_same(first: SampleRun) -> None:
    second = made(replace(FIRST, effective={"max_total_num_tokens": 310_000}, noise=2))
    found = compared(first, second).changes.found
    assert {(one.name, one.note) for one in found} == {("max_total_num_tokens", "not by the plan")}


def test_a_flag_without_effect_is_told_as_such(first: SampleRun) -> None:
    other = replace(FIRST, args={"attention-backend": "fa3"}, effective={"attention_backend": "triton"}, noise=2)
    (change,) = compared(first, made(other)).changes.found
    assert (change.name, change.before, change.after) == ("attention_backend", "triton", "fa3")
    assert change.note.startswith("by the plan, without effect")


def test_a_flag_that_the_server_does_not_tell_and_one_of_a_single_method(first: SampleRun) -> None:
    sample = made(replace(FIRST, args={"attention-backend": "triton", "numa": True}, noise=2))
    (change,) = compared(first, sample).changes.found
    assert (change.name, change.before, change.after) == ("numa", None, "true")
    assert change.note == "by the plan; the server does not tell it"


def test_cells_of_one_run_only_are_listed_and_a_failed_one_is_lost(first: SampleRun) -> None:
    second = made(replace(FIRST, methods=("ar", "dflash"), failing=("c003",), noise=2))
    comparison = compared(first, second)
    lost = [(one.cell.cell, one.because) for one in comparison.lost]
    assert lost == [("c003", "failed: CUDA out of memory")]
    only_in_first = {one.cell.cell for one in comparison.one_sided if one.in_first and not one.lost}
    assert only_in_first == {f"c{number:03}" for number in range(17, 25)}
    assert comparison.is_worse("output_rate")
    back = compared(second, first)
    assert back.lost == []
    assert len([one for one in back.one_sided if not one.in_first]) == 9


def test_a_cell_that_the_deadline_or_the_end_left_without_figures_is_lost(runs: Path) -> None:
    made(replace(FIRST, late=("c003",), noise=2)).write(runs / "late")
    comparison, _ = compare_folders(runs / "first", runs / "late")
    assert [(one.cell.cell, one.because) for one in comparison.lost] == [
        ("c003", "skipped: no time is left (deadline)")
    ]
    assert main(["compare", "first", "late"]) == 1
    made(replace(FIRST, skipped=("c003",), noise=2)).write(runs / "shorter")
    assert main(["compare", "first", "shorter"]) == 0
    ended = made(replace(FIRST, never=("c003",), noise=2))
    ended.write(runs / "ended")
    assert main(["compare", "first", "ended"]) == 1
    ended.entries.pop()
    ended.write(runs / "goes-on")
    assert main(["compare", "first", "goes-on"]) == 0


def test_workloads_and_servers_of_the_plans_are_among_the_changes(first: SampleRun) -> None:
    longer = made(replace(FIRST, lengths=(512, 2048), sizes=(4,), args={"attention-backend": "fa3"}, noise=2))
    found = {(one.about, one.name, one.before, one.after, one.where) for one in compared(first, longer).changes.found}
    assert found == {
        ("plan", "servers", "ar TP1, dflash TP1, ddtree-b15 TP1", None, ""),
        ("plan", "max_tokens", "256, 1024", "512, 2048", "workload generate"),
        ("server", "attention_backend", "triton", "fa3", "all servers"),
    }


def test_a_skip_rule_of_one_plan_is_among_the_changes(first: SampleRun) -> None:
    second = made(replace(FIRST, skipped=("c001", "c002", "c005"), noise=2))
    (change,) = compared(first, second).changes.found
    assert (change.about, change.name, change.before) == ("plan", "skip rule, 3 cells", "measured")
    assert (change.after, change.where) == ("skipped: too slow", "ar")


def test_a_simulated_run_does_not_compare_with_a_measured_one(first: SampleRun) -> None:
    comparison = compared(first, made(replace(FIRST, simulated=True, noise=2)))
    assert comparison.refusals == ("first is simulated, the other was measured",)
    assert all(one.differences == () for one in comparison.figures)


def test_other_models_do_not_compare(first: SampleRun) -> None:
    comparison = compared(first, made(replace(FIRST, model="7c" * 32, noise=2)))
    assert comparison.refusals[0].startswith("they served different models")
    assert [(one.name, one.before, one.after) for one in comparison.changes.found] == [
        ("model files", "9b1d9b1d9b1d", "7c7c7c7c7c7c")
    ]


def test_runs_without_a_common_cell_do_not_compare(first: SampleRun) -> None:
    comparison = compared(first, made(replace(FIRST, methods=("ngram",), noise=2)))
    assert comparison.refusals[0].startswith("they have no cell in common")


def test_other_texts_under_the_same_name_are_not_compared(first: SampleRun) -> None:
    old = side(first, RunFiles({}, {"prompts": {"five": ["a"]}}, None))
    new = side(made(replace(FIRST, noise=2)), RunFiles({}, {"prompts": {"five": ["b"]}}, None))
    comparison = compare(old, new)
    assert len(comparison.other_prompts) == 24
    assert comparison.compared("output_rate").differences == ()
    assert [one.name for one in comparison.changes.found] == ["texts five"]


def test_a_change_below_the_least_is_none(first: SampleRun, changed: SampleRun) -> None:
    comparison = compare(side(first), side(changed), least=0.06)
    assert labels(comparison, Verdict.REGRESSED) == set()


def test_plan_files_that_differ_in_comments_only_are_said_to(first: SampleRun) -> None:
    (change,) = compared(first, made(replace(FIRST, plan_sha256="77" * 32, noise=2))).changes.found
    assert change.note == "the plan files differ in nothing that a run is made of"


@pytest.fixture
def runs(first: SampleRun, changed: SampleRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    first.write(tmp_path / "first")
    changed.write(tmp_path / "second")
    return tmp_path


def test_the_command_lists_regressions_first_and_its_status_tells(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "first", "sec"]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("A  first   sweep on ct200, begun ")
    assert any(line.split() == ["environment", "driver", "580.95.05", "→", "580.105.08"] for line in lines)
    assert out.index("regressed: 7 of 24") < out.index("improved: none of 24") < out.index("unchanged: 16")
    assert main(["compare", str(runs / "first"), str(runs / "first")]) == 0
    assert "what changed: nothing" in capsys.readouterr().out
    assert main(["compare", "first", "second", "--figure", "ttft"]) == 0


def test_the_command_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "first", "second", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in told["runs"]] == ["first", "second"]
    verdicts = [one["verdict"] for one in told["figures"]["output_rate"]["cells"]]
    assert verdicts.count("regressed") == 7
    assert told["comparable"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody", "first"], "there is no run 'nobody' here"),
        (["first", "./nowhere"], "./nowhere is no folder"),
        (["first", "/tmp"], "/tmp has no journal.jsonl in it"),
        (["first", "second", "--least", "-1"], "give a percentage from 0 to 100"),
    ],
)
def test_bad_input_is_said_in_one_line(
    runs: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_folder_without_a_run_in_its_journal_is_said_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "empty").mkdir()
    (runs / "empty" / "journal.jsonl").write_bytes(b"")
    assert main(["compare", "empty", "first"]) == 2
    err = capsys.readouterr().err
    assert "the journal holds no run: it is empty, so nothing of empty is known here" in err
    assert "name the directory" not in err
    assert main(["export", "empty", "--format", "csv"]) == 2
    assert "empty: journal empty: nothing is known of this run; what it measured lies in " in capsys.readouterr().err


def test_an_export_takes_the_path_of_a_folder_as_a_comparison_does(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(runs / "elsewhere"))
    assert main(["export", str(runs / "first"), "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("cell,method,")
    assert main(["export", "/tmp", "--format", "csv"]) == 2
    assert "/tmp has no journal.jsonl in it" in capsys.readouterr().err


def test_a_range_that_says_nothing_is_not_told_in_percent() -> None:
    wide, narrow = Estimate(1.2, 0.5, 200.535, Sureness.SPREAD), Estimate(1.2, 1.1, 1.3, Sureness.INTERVAL)
    assert ratio_text(wide) == "+20.0 % (cannot be told: 0.50 to 200.5 times)"
    assert ratio_text(narrow) == "+20.0 % [+10.0, +30.0]"


def test_of_a_damaged_journal_is_said_which_and_that_the_rest_is_not_known(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(replace(FIRST, noise=2)).write(runs / "torn") / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-40], b"{broken}\n", *lines[-39:]]))
    main(["compare", "first", "torn", "--latex", str(runs / "tex")])
    told = capsys.readouterr()
    where = f"line {len(lines) - 39} is damaged, nothing after it was read"
    assert f"warning: B, {path}: the journal is damaged: {where}" in told.err
    assert "what changed: not known" in told.out
    assert (
        f"what B did after the end of what could be read of it is not known: the journal is damaged: {where}"
        in told.out
    )
    assert "Nothing else is different" not in (runs / "tex" / "compare.tex").read_text()
    comparison, _ = compare_folders(runs / "first", runs / "torn")
    page = [plain(one) for one in comparison_page(comparison, "output_rate", 80, everything=False)]
    assert " what changed: not known" in page


def test_a_folder_of_that_name_without_a_run_is_said_to_lack_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "g4").mkdir()
    assert main(["compare", "g4", "first"]) == 2
    assert f"{runs / 'g4'} has no journal.jsonl in it" in capsys.readouterr().err
    (runs / "here" / "g5").mkdir(parents=True)
    monkeypatch.chdir(runs / "here")
    assert main(["compare", "first", "g5"]) == 2
    assert "g5 has no journal.jsonl in it" in capsys.readouterr().err


def test_an_attempt_that_was_changed_afterwards_is_in_no_figure(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = runs / "second" / "cells" / "c001" / "1.json"
    path.write_bytes(path.read_bytes() + b" ")
    main(["compare", "first", "second"])
    assert "B, second: c001: attempt 1 cannot be used: its attempt file was changed" in capsys.readouterr().err
