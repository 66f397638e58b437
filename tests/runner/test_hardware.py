"""What the hardware did during a cell, from samples whose dear readings were taken rarely."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.host_state import GpuState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml import unreadable_gpu
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler
from ddconsole.runner.hardware import disturbances, hardware_record, samples_between

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"


def gpu(at: float, **readings: Any) -> GpuState:
    """A GPU of which only these values are known."""
    made: Any = unreadable_gpu(0, "not recorded", at)
    for name, value in readings.items():
        made = replace(made, **{name: value if isinstance(value, Reading) else read(value, at, "test")})
    state: GpuState = made
    return state


def record(*gpus: GpuState, seconds: float) -> dict[str, Any]:
    """The record of GPU 0 over samples that hold these."""
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    sample = HostSampler(RecordedNvml(recording), lambda: 5.0).sample()
    whole = hardware_record([replace(sample, gpus=(one,)) for one in gpus], [0], seconds)
    found: dict[str, Any] = whole["gpus"]["0"]
    return found


def test_energy_by_the_counter_is_scaled_to_the_cell() -> None:
    kept = read(1000.0, 100.0, "counter")
    states = [gpu(101, energy=kept), gpu(103, energy=kept), gpu(109, energy=read(4000.0, 108.0, "counter"))]
    assert record(*states, seconds=10.0)["energy_joules"] == pytest.approx(3000 / 8 * 10)
    assert record(*states, seconds=10.0)["energy_from"] == "counter"


def test_one_reading_of_the_counter_is_no_energy_of_zero() -> None:
    kept = read(1000.0, 99.0, "counter")
    states = [gpu(101, energy=kept, power=300.0), gpu(103, energy=kept, power=500.0)]
    assert record(*states, seconds=4.0)["energy_joules"] == pytest.approx(1600.0)
    assert record(*states, seconds=4.0)["energy_from"] == "mean power"


def test_a_counter_that_spans_less_than_half_of_the_cell_does_not_stand_for_it() -> None:
    states = [
        gpu(101, energy=read(0.0, 100.0, "c"), power=100.0),
        gpu(103, energy=read(900.0, 103.0, "c"), power=300.0),
    ]
    assert record(*states, seconds=10.0)["energy_from"] == "mean power"
    assert record(*states, seconds=6.0)["energy_from"] == "counter"


def test_no_reading_gives_no_figure() -> None:
    assert "energy_joules" not in record(gpu(1), gpu(2), seconds=2.0)
    assert "thermally_slowed_seconds" not in record(gpu(1), gpu(2), seconds=2.0)


def test_slowed_between_two_samples_is_flagged_by_the_counters() -> None:
    """The reasons are a glance every two seconds: what happened between them shows in the counters alone."""
    states = [
        gpu(1, thermally_slowed=2.0, power_capped=1.0, clock_event_reasons=0),
        gpu(3, thermally_slowed=2.5, power_capped=9.0, clock_event_reasons=4),
    ]
    found = record(*states, seconds=2.0)
    assert found["thermally_slowed_seconds"] == 0.5
    assert found["power_capped_seconds"] == 8.0
    assert disturbances({"gpus": {"0": found}}) == ("GPU 0 was slowed by heat or a power brake for 0.5 s",)


def test_the_power_cap_alone_disturbs_nothing() -> None:
    found = record(gpu(1, power_capped=1.0), gpu(3, power_capped=3.0), seconds=2.0)
    assert disturbances({"gpus": {"0": found}}) == ()


def test_an_xid_during_the_cell_is_flagged_and_one_before_it_is_not() -> None:
    found = record(gpu(1, xids=(31,)), gpu(3, xids=(31, 79)), seconds=2.0)
    assert disturbances({"gpus": {"0": found}}) == ("GPU 0 reported Xid 79",)
    assert "xids" not in record(gpu(1, xids=(31,)), gpu(3, xids=(31,)), seconds=2.0)
    assert "xids" not in record(gpu(1, xids=unavailable("no events", 1.0, "")), gpu(3), seconds=2.0)


def test_samples_of_the_cell_alone_are_taken(tmp_path: Path) -> None:
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    sample = HostSampler(RecordedNvml(recording), lambda: 5.0, tmp_path).sample()
    path = tmp_path / "telemetry.jsonl"
    lines = [json.dumps(host_state_to_json(replace(sample, at=float(at)))) for at in (1, 2, 3, 4)]
    path.write_text("\n".join([*lines, '{"torn']))
    assert [one.at for one in samples_between(path, 2.0, 3.0)] == [2.0, 3.0]
    assert samples_between(tmp_path / "none", 0.0, 9.0) == []
