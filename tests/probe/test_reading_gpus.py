"""The recorded H200 machine, and synthetic ones made from it by changing one answer."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.host_state import HostState, cpu_numbers, reason_names
from ddconsole.core.host_state_json import host_state_from_json, host_state_to_json
from ddconsole.probe.nvml import GpuReader
from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.rehearsed import probed_machine
from ddconsole.probe.sampler import HostSampler

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"


@pytest.fixture
def recording() -> Any:
    return json.loads((FIXTURES / "h200x2.json").read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_files(json.loads((FIXTURES / "h200x2-files.json").read_text()), tmp_path)
    return tmp_path


def ticking() -> Callable[[], float]:
    ticks = count(1000)
    return lambda: float(next(ticks))


def test_recorded_h200_machine_is_read_as_nvidia_smi_showed_it(recording: Any, root: Path) -> None:
    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()

    assert state.driver.value == "580.159.04"
    assert state.cuda_driver.value == "13.0"
    assert state.gpu_count.value == 2
    gpu = state.gpus[0]
    assert gpu.name.value == "NVIDIA H200"
    assert gpu.pci_address.value == "0000:00:06.0"
    assert gpu.memory_total.value == 150754820096
    assert gpu.memory_used.value == 0, "version 2 of the call: the driver's 615 MiB are not used memory"
    assert gpu.power.value == pytest.approx(79.863)
    assert gpu.power_limit.value == 700.0
    assert gpu.energy.value == pytest.approx(2996.133)
    assert (gpu.temperature.value, gpu.sm_clock.value, gpu.sm_clock_max.value) == (34, 345, 1980)
    assert gpu.clock_event_reasons.map(reason_names).value == ("idle",)
    assert (gpu.pcie_generation.value, gpu.pcie_width.value) == (5, 16)
    assert (gpu.pcie_generation_max.value, gpu.pcie_width_max.value, gpu.pcie_generation_card.value) == (5, 16, 5)
    assert gpu.compute_capability.value == (9, 0)
    assert gpu.processes.value == ()
    assert gpu.numa_node.value == 0, "sysfs says -1, the driver names node 0"
    assert gpu.numa_node.source == "nvmlDeviceGetMemoryAffinity"
    assert [(node.index, node.cpus.value, node.gpus) for node in state.nodes] == [(0, "0-31", (0, 1))]
    assert [(pair.a, pair.b) for pair in state.pairs] == [(0, 1)]
    assert (state.pairs[0].common_ancestor.value, state.pairs[0].p2p.value) == ("PHB", "ok")
    assert state.pairs[0].nvlink.value is True
    assert not state.simulated


def test_host_state_survives_json(recording: Any, root: Path) -> None:
    recording["devices"][1]["nvmlDeviceGetComputeRunningProcesses_v3"] = {
        "value": [{"pid": 4242, "usedGpuMemory": 1 << 30}, {"pid": 7, "usedGpuMemory": None}]
    }
    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root, disks=("/", "/nowhere")).sample()
    assert state.disks[1].free.unavailable == "No such file or directory"

    again = host_state_from_json(json.loads(json.dumps(host_state_to_json(state))))

    assert again == state


def test_json_of_another_version_is_read(recording: Any, root: Path) -> None:
    data = host_state_to_json(HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample())
    data["invented_later"] = 1
    del data["gpus"][0]["energy"]

    state = host_state_from_json(data)

    assert state.gpus[0].energy.unavailable == "not told by the sender's version"
    assert state.gpus[1].energy.known


@pytest.mark.parametrize("data", [{}, {"at": 1.0}, {"at": "x", "gpus": []}])
def test_what_is_no_host_state_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # float() has its own words
        host_state_from_json(data)


def test_not_supported_is_asked_once_and_is_no_error(recording: Any) -> None:
    recording["devices"][0]["nvmlDeviceGetTotalEnergyConsumption"] = {"error": "Not Supported", "code": 3}
    nvml = RecordedNvml(recording)
    reader = GpuReader(nvml, ticking())

    states = [reader.sample() for _ in range(3)]

    assert states[2].gpus[0].energy.unavailable == "not supported by this GPU (NVML 3)"
    assert states[2].gpus[1].energy.known
    assert nvml.asked["nvmlDeviceGetTotalEnergyConsumption", 0] == 1
    assert nvml.asked["nvmlDeviceGetTotalEnergyConsumption", 1] == 3
    assert nvml.asked["nvmlDeviceGetName", 0] == 1


def test_passing_error_is_asked_again(recording: Any) -> None:
    call = "nvmlDeviceGetTemperature"
    recording["devices"][0][call] = {"error": "Not Ready", "code": 27}
    reader = GpuReader(RecordedNvml(recording), ticking())
    assert "still initialising" in (reader.sample().gpus[0].temperature.unavailable or "")

    recording["devices"][0][call] = {"value": 40}

    assert reader.sample().gpus[0].temperature.value == 40


def test_lost_gpu_does_not_stop_the_others(recording: Any) -> None:
    nvml = RecordedNvml(recording)
    reader = GpuReader(nvml, ticking())
    reader.sample()
    before = dict(nvml.asked)
    recording["devices"][0] = {call: {"error": "GPU is lost", "code": 15} for call in recording["devices"][0]}

    sample = reader.sample()

    lost, other = sample.gpus
    assert lost.uuid.value == "GPU-00000000-0000-0000-0000-000000000000", "it keeps its identity"
    assert lost.memory_used.unavailable == "the GPU is lost: it fell off the bus (NVML 15)"
    assert lost.temperature.unavailable == lost.memory_used.unavailable
    assert other.temperature.value == 33
    asked = sum(nvml.asked[key] - before[key] for key in before if key[1] == 0)
    assert asked == 1, "every further call on a lost GPU may wait 45 s for the driver"


def test_gpu_that_may_not_be_opened_has_a_row_with_the_reason(recording: Any, root: Path) -> None:
    recording["devices"][1]["nvmlDeviceGetHandleByIndex"] = {"error": "Insufficient Permissions", "code": 4}

    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()

    assert [gpu.index for gpu in state.gpus] == [0, 1]
    assert "no permission" in (state.gpus[1].name.unavailable or "")
    assert state.pairs == ()


@pytest.mark.parametrize(
    ("code", "words"),
    [(12, "no NVIDIA driver library"), (9, "not loaded"), (18, "version mismatch"), (999, "lost access")],
)
def test_no_driver_is_an_answer_with_a_reason(recording: Any, root: Path, code: int, words: str) -> None:
    recording["nvmlInit"] = {"error": "as NVML says", "code": code}

    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()

    assert words in (state.gpu_count.unavailable or "")
    assert state.gpus == ()
    assert state.cpu_count.known


def test_library_is_not_initialised_again_and_again(recording: Any) -> None:
    recording["nvmlInit"] = {"error": "Driver Not Loaded", "code": 9}
    now = [100.0]
    reader = GpuReader(RecordedNvml(recording), lambda: now[0])
    reader.sample()
    recording["nvmlInit"] = {"value": None}

    now[0] = 110.0
    assert not reader.sample().count.known
    now[0] = 131.0
    assert reader.sample().count.value == 2


def test_call_that_a_stand_in_lacks_is_not_available(recording: Any) -> None:
    for device in recording["devices"]:
        del device["nvmlDeviceGetEnforcedPowerLimit"]

    gpu = GpuReader(RecordedNvml(recording), ticking()).sample().gpus[0]

    assert gpu.power_limit.unavailable == "not in this driver's library"


def test_set_of_nodes_is_not_taken_for_the_first_one(recording: Any, root: Path) -> None:
    recording["devices"][0]["nvmlDeviceGetMemoryAffinity"] = {"value": [0b11]}

    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()

    assert state.gpus[0].numa_node.unavailable == "NVML names 2 nodes: [0, 1]"
    assert state.nodes[0].gpus == (1,)


def test_kernel_goes_before_the_driver_on_the_node(recording: Any, root: Path) -> None:
    (root / "sys/bus/pci/devices/0000:00:07.0/numa_node").write_text("1\n")

    state = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()

    assert state.gpus[1].numa_node.value == 1
    assert [(node.index, node.gpus) for node in state.nodes] == [(0, (0,)), (1, (1,))]
    assert state.nodes[1].cpus.unavailable == "No such file or directory"


def test_link_comes_from_the_kernel_where_nvml_has_none(recording: Any, root: Path) -> None:
    for call in ("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"):
        recording["devices"][0][call] = {"error": "Not Supported", "code": 3}
    folder = root / "sys/bus/pci/devices/0000:00:06.0"
    (folder / "current_link_speed").write_text("2.5 GT/s PCIe")
    (folder / "current_link_width").write_text("8")

    gpu = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample().gpus[0]

    assert (gpu.pcie_generation.value, gpu.pcie_width.value) == (1, 8)
    assert gpu.pcie_generation.source.endswith("current_link_speed")


def test_first_sample_has_no_cpu_percentage(recording: Any, root: Path) -> None:
    sampler = HostSampler(RecordedNvml(recording), lambda: 5.0, root)

    first, second = sampler.sample(), sampler.sample()

    assert first.cpu_percent.unavailable == "the first sample has no interval"
    assert second.cpu_percent.known


def test_boot_token_changes_with_a_start_of_the_container(recording: Any, root: Path) -> None:
    def token() -> str:
        state: HostState = HostSampler(RecordedNvml(recording), lambda: 5.0, root).sample()
        return state.boot_token.require()

    (root / "proc/1").mkdir()
    (root / "proc/1/stat").write_text("1 (a ) b) S 0 " + " ".join("0" for _ in range(17)) + " 777 0 0")
    first = token()
    (root / "proc/1/stat").write_text("1 (a ) b) S 0 " + " ".join("0" for _ in range(17)) + " 778 0 0")
    second = token()
    (root / "proc/sys/kernel/random/boot_id").write_text("another")

    assert first == "00000000-0000-4000-8000-000000000001.777"
    assert second == "00000000-0000-4000-8000-000000000001.778"
    assert token() == "another.778"


def test_machine_without_a_driver_is_read_by_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDCONSOLE_REHEARSAL", raising=False)
    machine = probed_machine()
    sample = GpuReader(machine.nvml, ticking()).sample()

    assert not machine.simulated
    assert machine.root == Path("/")
    assert sample.count.source in {"nvmlInit", "nvmlDeviceGetCount"}


def test_rehearsed_machine_is_read_by_the_same_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDCONSOLE_REHEARSAL", str(tmp_path))
    machine = probed_machine()
    state = HostSampler(machine.nvml, lambda: 5.0, machine.root, simulated=machine.simulated).sample()

    assert state.simulated
    assert "simulated" in state.hostname.require()
    assert state.gpu_count.value == len(state.gpus) == 8
    assert [node.gpus for node in state.nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert all(node.memory_total.known for node in state.nodes)
    assert state.load.unavailable == "not simulated", "this machine's load is not the simulated one's"
    assert all(gpu.energy.known for gpu in state.gpus)
    assert host_state_from_json(json.loads(json.dumps(host_state_to_json(state)))) == state
    assert probed_machine().root == machine.root


def test_masks_and_lists() -> None:
    assert reason_names(0x44) == ("power cap", "thermal (hardware)")
    assert reason_names(0x1000) == ("0x1000",)
    assert cpu_numbers("0-2,8\n") == (0, 1, 2, 8)
    assert cpu_numbers("") == ()
    with pytest.raises(ValueError, match="invalid literal"):
        cpu_numbers("0-x")
