"""Figures as data: every point against the attempt files, by another way."""

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest

from ddconsole.core.attempt_file import AttemptFile
from ddconsole.core.records import RequestRecord
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.charts import all_charts
from ddconsole.report.collect import result_set
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import ResultSet
from ddconsole.report.series import Chart, Curve, Panel, Role, chart_csv
from tests.report.sample_runs import SampleRun
from tests.report.test_tables import acceptance, files_of, median_of, rate, server_rate, ttft


def chart_of(result: ResultSet, name: str) -> Chart:
    return next(one for one in all_charts(result) if one.name == name)


def panel_of(chart: Chart, title: str) -> Panel:
    return next(one for one in chart.panels if one.title == title)


def curve_of(panel: Panel, name: str) -> Curve:
    return next(one for one in panel.curves if one.name == name)


def values(curve: Curve) -> dict[float, float]:
    return {point.x: point.y.value for point in curve.known if point.y}


def with_hardware(sample: SampleRun, record: Callable[[AttemptFile], dict[str, object]]) -> ResultSet:
    files = {key: replace(file, hardware=record(file)) for key, file in sample.attempts.items()}
    return result_set(sample.state, attempts_in_memory(files))


def test_against_length_are_the_medians_of_the_files(ct200: SampleRun, ct200_results: ResultSet) -> None:
    chart = chart_of(ct200_results, "fig-length-generate-tp4")
    assert [panel.title for panel in chart.panels] == ["output rate", "speed-up", "acceptance"]
    for method in ("ar", "dflash", "ddtree-b16"):
        files = {
            length: files_of(ct200, method, 4, workload="generate", max_tokens=length) for length in (256, 1024, 2048)
        }
        assert values(curve_of(chart.panels[0], method)) == pytest.approx(
            {length: median_of(some, rate) for length, some in files.items()}
        )
        assert values(curve_of(chart.panels[2], method)) == pytest.approx(
            {length: acceptance(some) for length, some in files.items()}
        )


def test_against_concurrency_are_both_rates_and_the_time_to_first_token(
    ct200: SampleRun, ct200_results: ResultSet
) -> None:
    chart = chart_of(ct200_results, "fig-concurrency-concurrency-512-tp1")
    files = {
        number: files_of(ct200, "dflash", 1, workload="concurrency", concurrency=number) for number in (1, 2, 4, 8)
    }
    assert values(curve_of(panel_of(chart, "server"), "dflash")) == pytest.approx(
        {number: server_rate(some) for number, some in files.items()}
    )
    assert values(curve_of(panel_of(chart, "time to first token"), "dflash")) == pytest.approx(
        {number: median_of(some, ttft) for number, some in files.items() if 3 * 5 * number >= 11}
    )
    unfit = curve_of(panel_of(chart, "server"), "ddtree-b64").points[-1]
    assert (unfit.x, unfit.y, unfit.mark) == (8.0, None, Mark.UNFIT)


def test_turn_by_turn_are_the_medians_of_each_turn(ct200: SampleRun, ct200_results: ResultSet) -> None:
    chart = chart_of(ct200_results, "fig-turns-calculator-tp8")
    files = files_of(ct200, "ddtree-b15", 8, workload="calculator")
    expected = {
        float(turn): statistics.median(rate(one) for file in files for one in file.requests if one.turn == turn)
        for turn in range(1, 6)
    }
    assert values(curve_of(panel_of(chart, "output rate"), "ddtree-b15")) == pytest.approx(expected)
    assert chart.notes == ("Context at the turns, in prompt tokens: 40; 40; 40; 40; 40.",)


def test_against_size_marks_where_gpus_hang_on_several_nodes(ct200: SampleRun) -> None:
    def record(file: AttemptFile) -> dict[str, object]:
        return {"gpus": {str(gpu): {"numa_node": gpu // 4} for gpu in file.deployment["placement"]["gpus"]}}

    chart = chart_of(with_hardware(ct200, record), "fig-scaling")
    assert len(chart.panels) == 9
    bands = {panel.bands for panel in chart.panels}
    (band,) = bands.pop()
    assert not bands
    assert band.low == pytest.approx((4 * 8) ** 0.5)
    assert "Shaded" in chart.notes[0]
    assert [point.x for point in curve_of(chart.panels[0], "dflash").known] == [1, 4, 8]


def test_against_size_says_when_nodes_are_not_known(ct200_results: ResultSet) -> None:
    chart = chart_of(ct200_results, "fig-scaling")
    assert all(panel.bands == () for panel in chart.panels)
    assert chart.notes == ("On which NUMA nodes the GPUs hang is not in the records.",)


def test_the_best_of_all_sizes_is_beaten_by_no_point(ct200_results: ResultSet) -> None:
    chart = chart_of(ct200_results, "fig-pareto-concurrency-512")
    points = [
        (point.x, point.y.value)
        for panel in chart.panels
        for curve in panel.curves
        if curve.role is not Role.FRONTIER
        for point in curve.known
        if point.y
    ]
    best = [(point.x, point.y.value) for point in chart.panels[0].curves[0].known if point.y]
    assert 1 <= len(best) < len(points)
    for x, y in points:
        assert any(bx <= x and by >= y for bx, by in best)
        assert not any(x <= bx and y > by for bx, by in best)


def test_energy_is_that_of_all_gpus_over_the_tokens(ct200: SampleRun) -> None:
    def record(file: AttemptFile) -> dict[str, object]:
        gpus = file.deployment["placement"]["gpus"]
        return {"gpus": {str(gpu): {"energy_joules": 100.0 + gpu, "energy_from": "counter"} for gpu in gpus}}

    result = with_hardware(ct200, record)
    chart = chart_of(result, "fig-energy-single-tp4")
    drawn = values(curve_of(chart.panels[0], "dflash"))
    files = files_of(ct200, "dflash", 4, workload="generate", max_tokens=256)
    tokens = sum(one.output_tokens or 0 for file in files for one in file.requests)
    assert drawn[0] == pytest.approx(len(files) * (104 + 105 + 106 + 107) / tokens)
    assert "energy counters" in chart.notes[0]


def test_energy_of_a_cell_with_one_unknown_gpu_is_not_drawn(ct200: SampleRun) -> None:
    def record(file: AttemptFile) -> dict[str, object]:
        return {"gpus": {"0": {"energy_joules": 5.0}, "1": {}}}

    assert not any(one.name.startswith("fig-energy") for one in all_charts(with_hardware(ct200, record)))


def test_drift_is_each_attempt_over_its_cells_median(ct200: SampleRun) -> None:
    def record(file: AttemptFile) -> dict[str, object]:
        return {"gpus": {"0": {"temperature_mean": 60.0 + file.launch, "sm_clock_mean": 2000.0}}}

    chart = chart_of(with_hardware(ct200, record), "fig-drift")
    assert [panel.title for panel in chart.panels] == ["output rate", "temperature", "clock"]
    files = files_of(ct200, "ar", 1, workload="generate", max_tokens=256)
    rates = [statistics.median(rate(one) for one in file.requests) for file in files]
    drawn = [point.y.value for point in curve_of(chart.panels[0], "ar TP1").known if point.y]
    for one in rates:
        assert any(value == pytest.approx(one / statistics.median(rates)) for value in drawn)


def test_acceptance_bins_hold_every_request_once(ct200: SampleRun, ct200_results: ResultSet) -> None:
    chart = chart_of(ct200_results, "fig-acceptance-tp1")
    assert [panel.curves[0].name for panel in chart.panels] == [
        "dflash",
        *(f"ddtree-b{b}" for b in (8, 12, 15, 16, 32, 64)),
    ]
    for panel in chart.panels:
        assert sum(values(panel.curves[0]).values()) == pytest.approx(1.0)
    files = [
        file
        for file in ct200.attempts.values()
        if (file.deployment["method"], file.deployment["tensor_parallel"]) == ("dflash", 1)
    ]
    lengths = [one.acceptance.length or 0 for file in files for one in file.requests if one.acceptance]
    begins = [float(name) for name in chart.panels[0].x.names]
    width = begins[1] - begins[0]
    shares = {
        place: sum(begin <= x < begin + width for x in lengths) / len(lengths) for place, begin in enumerate(begins)
    }
    assert values(chart.panels[0].curves[0]) == pytest.approx(shares, abs=0.02)


def test_acceptance_is_that_of_the_steps_where_every_engine_told_positions(ct200: SampleRun) -> None:
    def told(record: RequestRecord) -> RequestRecord:
        if record.acceptance is None:
            return record
        steps = record.acceptance.steps or 0
        return replace(record, acceptance=replace(record.acceptance, accepted_at=(steps, steps // 2)))

    files = {
        key: replace(file, requests=tuple(told(one) for one in file.requests)) for key, file in ct200.attempts.items()
    }
    result = result_set(ct200.state, attempts_in_memory(files))
    chart = chart_of(result, "fig-acceptance-tp1")
    drawn = values(chart.panels[0].curves[0])
    steps = [
        one.acceptance.steps or 0
        for file in files.values()
        if (file.deployment["method"], file.deployment["tensor_parallel"]) == ("dflash", 1)
        for one in file.requests
        if one.acceptance
    ]
    halves = sum(one // 2 for one in steps)
    assert chart.panels[0].x.names == ("1", "2", "3")
    assert drawn == pytest.approx({0: 0.0, 1: 1 - halves / sum(steps), 2: halves / sum(steps)})


def test_equal_outputs_stand_beside_the_budget(ct200: SampleRun) -> None:
    def other(record: RequestRecord, method: str) -> RequestRecord:
        is_other = method == "ddtree-b64" and record.prompt == "code"
        return replace(record, text_sha256="b" if is_other else "a")

    files = {
        key: replace(file, requests=tuple(other(one, str(file.deployment["method"])) for one in file.requests))
        for key, file in ct200.attempts.items()
    }
    result = result_set(ct200.state, attempts_in_memory(files))
    chart = chart_of(result, "fig-budget-single-tp1")
    panel = next(one for one in chart.panels if one.y.label.startswith("equal"))
    assert values(curve_of(panel, "ddtree")) == pytest.approx({8: 1, 12: 1, 15: 1, 16: 1, 32: 1, 64: 0.8})


def test_twins_have_a_row_for_each_point_with_its_cell(ct200_results: ResultSet) -> None:
    for chart in all_charts(ct200_results):
        lines = chart_csv(chart, simulated=True).splitlines()
        points = sum(len(curve.points) for panel in chart.panels for curve in panel.curves)
        assert len(lines) == points + 1, chart.name
        assert all(line.endswith(",true") for line in lines[1:])


def test_a_method_looks_the_same_in_every_chart(ct200_results: ResultSet) -> None:
    places: dict[str, set[int]] = {}
    for chart in all_charts(ct200_results):
        if not chart.name.startswith("fig-drift"):
            for panel in chart.panels:
                for curve in panel.curves:
                    places.setdefault(curve.name, set()).add(curve.place)
    assert all(len(some) == 1 for some in places.values()), places
