"""What the hardware did during a cell, from samples whose dear readings were taken rarely."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.host_state import GpuProcess, GpuState, HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml import unreadable_gpu
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler
from ddconsole.runner.hardware import disturbances, hardware_record, samples_between
from ddconsole.runner.surroundings import waiting_flags

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


def test_temperature_is_the_mean_and_the_highest_and_the_node_is_the_last_told() -> None:
    told = record(gpu(1, temperature=60, numa_node=1), gpu(2, temperature=70, numa_node=1), seconds=2.0)
    assert (told["temperature_mean"], told["temperature_max"], told["numa_node"]) == (65.0, 70.0, 1)
    assert "numa_node" not in record(gpu(1, numa_node=-1), seconds=2.0)


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


def linked(at: float, generation: int, utilisation: int = 97, **readings: Any) -> GpuState:
    most = {"pcie_generation_max": 5, "pcie_width_max": 16, "pcie_width": 16}
    return gpu(at, pcie_generation=generation, utilisation=utilisation, performance_state=0, **most, **readings)


def test_a_link_that_is_trained_down_while_it_computes_is_flagged() -> None:
    """A card stood at generation 2 for hours at full load, without an error anywhere (rtx6kpro PR#88)."""
    low = record(*(linked(at, 2) for at in (1, 2, 3)), seconds=3.0)
    idle = record(linked(1, 1, utilisation=0), linked(2, 5), linked(3, 5), seconds=3.0)
    once = record(linked(1, 1), linked(2, 5), linked(3, 5), seconds=3.0)

    assert disturbances({"gpus": {"0": low}}) == ("GPU 0's link was 2x16 of 5x16 while it computed",)
    assert disturbances({"gpus": {"0": idle}}) == disturbances({"gpus": {"0": once}}) == ()
    assert idle["links"] == ["1x16", "5x16"]


def test_link_errors_are_counted_over_the_cell_alone() -> None:
    states = [
        linked(1, 5, pcie_replays=700, aer_corrected=3, aer_uncorrected=0),
        linked(3, 5, pcie_replays=712, aer_corrected=3, aer_uncorrected=2),
    ]
    found = record(*states, seconds=2.0)
    assert (found["pcie_replays"], found["aer_corrected"], found["aer_uncorrected"]) == (12, 0, 2)
    assert disturbances({"gpus": {"0": found}}) == ("GPU 0's link made 2 errors that were not corrected",)


def surrounded(**readings: float) -> HostState:
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    sample = HostSampler(RecordedNvml(recording), lambda: 5.0).sample()
    made: Any = sample
    for name, value in readings.items():
        made = replace(made, **{name: read(value, 5.0, "test")})
    state: HostState = made
    return state


def test_what_waited_and_what_the_page_cache_held() -> None:
    samples = [
        surrounded(pressure_memory=0.0, pressure_io=1.0, pressure_cpu=90.0, page_cache=50, memory_available=70),
        surrounded(pressure_memory=8.0, pressure_io=3.0, pressure_cpu=90.0, page_cache=20, memory_available=60),
    ]
    around = hardware_record(samples, [0], 2.0)["around"]

    assert around["pressure_memory_mean"] == 4.0
    assert around["pressure_io_max"] == 3.0
    assert (around["page_cache_first"], around["page_cache_last"], around["memory_available_min"]) == (50, 20, 60)
    assert waiting_flags(around, on_gpus=True) == (
        "programs waited for memory in up to 8 % of ten seconds",
        "programs waited for CPUs in up to 90 % of ten seconds",
    )
    assert len(waiting_flags(around, on_gpus=False)) == 1, "a server on CPUs makes others wait"


def test_samples_of_the_cell_alone_are_taken(tmp_path: Path) -> None:
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    sample = HostSampler(RecordedNvml(recording), lambda: 5.0, tmp_path).sample()
    path = tmp_path / "telemetry.jsonl"
    lines = [json.dumps(host_state_to_json(replace(sample, at=float(at)))) for at in (1, 2, 3, 4)]
    path.write_text("\n".join([*lines, '{"torn']))
    assert [one.at for one in samples_between(path, 2.0, 3.0)] == [2.0, 3.0]
    assert samples_between(tmp_path / "none", 0.0, 9.0) == []


def users(at: float, *processes: tuple[int, int]) -> Reading[tuple[GpuProcess, ...]]:
    return read(tuple(GpuProcess(pid, gib * 1024**3) for pid, gib in processes), at, "driver")


def shared(own: set[int], *looks: Reading[tuple[GpuProcess, ...]]) -> tuple[str, ...]:
    """The flags of a cell over these looks at who uses GPU 0."""
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    sample = HostSampler(RecordedNvml(recording), lambda: 5.0).sample()
    samples = [
        replace(sample, at=100.0 + 2 * n, gpus=(gpu(100.0 + 2 * n, processes=look),)) for n, look in enumerate(looks)
    ]
    flags = disturbances(hardware_record(samples, [0], 10.0, own))
    # The sample around the GPU is of this machine, which may be busy.
    return tuple(one for one in flags if one.startswith("GPU 0"))


def test_a_process_that_is_not_the_servers_is_flagged_with_what_it_held() -> None:
    looks = users(100.0, (7, 60)), users(104.0, (7, 60), (9, 1)), users(108.0, (7, 60), (9, 3))
    assert shared({7, 8}, *looks) == ("GPU 0 was used by another process too: pid 9, 3.0 GiB",)
    there_before = users(100.0, (7, 60), (9, 2))
    assert shared({7, 8}, there_before) == ("GPU 0 was used by another process too: pid 9, 2.0 GiB",)
    assert shared({7, 8}, users(100.0, (7, 60), (8, 1))) == ()


def test_where_the_driver_numbers_otherwise_who_comes_later_is_foreign() -> None:
    """In a container the driver may tell the host's pids: none of them is one of the server's here."""
    assert shared({7}, users(100.0, (4007, 60)), users(104.0, (4007, 60))) == ()
    assert shared({7}, users(100.0, (4007, 60)), users(104.0, (4007, 60), (4009, 1))) == (
        "GPU 0 was used by another process too: pid 4009, 1.0 GiB",
    )
    assert shared({7}, users(100.0), users(104.0, (4007, 60))) == (), "nobody is known: nobody is foreign"


def test_a_look_from_before_the_cell_says_nothing_of_it() -> None:
    """A look is kept for ten seconds: it may still show the server of the launch before."""
    assert shared({7}, users(91.0, (6, 60)), users(91.0, (6, 60)), users(104.0, (7, 60))) == ()
    assert shared({7}, unavailable("not supported", 100.0, "driver")) == ()
