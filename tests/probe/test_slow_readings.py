"""What is read rarely, what is a rate, and what comes from the kernel and not from the driver."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest

from ddconsole.core.host_state import DeviceOpener, RemappedRows
from ddconsole.core.readings import read, unavailable
from ddconsole.probe import limits
from ddconsole.probe.nvml import GpuReader
from ddconsole.probe.openers import device_openers
from ddconsole.probe.pcie_traffic import moved
from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.sampler import HostSampler

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"


class HandClock:
    """Wall time that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def recording() -> Any:
    return json.loads((FIXTURES / "h200x2.json").read_text())


def field(recording: Any, number: int) -> Any:
    values = recording["devices"][0]["nvmlDeviceGetFieldValues"]["value"]
    return next(one for one in values if one["fieldId"] == number)


def test_recorded_health_of_the_h200(recording: Any, clock: HandClock) -> None:
    gpu = GpuReader(RecordedNvml(recording), clock).sample().gpus[0]

    assert gpu.power_now.value == pytest.approx(80.222)
    assert gpu.pcie_replays.value == 0
    assert (gpu.ecc_corrected.value, gpu.ecc_uncorrected.value) == (0, 0)
    assert gpu.remapped_rows.value == RemappedRows(0, 0, pending=False, failed=False)
    assert (gpu.persistence.value, gpu.mig.value) == (True, False)
    assert gpu.cpu_affinity.value == "0-31"
    assert gpu.recovery_action.unavailable == "not answered", "this field was not recorded"
    assert gpu.xids.unavailable == "not in this driver's library"


def test_slow_calls_are_made_rarely_and_when_quiet_every_minute(recording: Any, clock: HandClock) -> None:
    nvml = RecordedNvml(recording)
    reader = GpuReader(nvml, clock)

    def calls(quiet: bool) -> dict[str, int]:
        before = dict(nvml.asked)
        for _ in range(60):
            reader.sample(quiet=quiet)
            clock.time += 1
        return {call: count - before.get((call, 0), 0) for (call, gpu), count in nvml.asked.items() if gpu == 0}

    loud, quiet = calls(quiet=False), calls(quiet=True)

    def asked(call: str) -> tuple[int, int]:
        return loud[f"nvmlDeviceGet{call}"], quiet[f"nvmlDeviceGet{call}"]

    assert asked("UtilizationRates") == (60, 60)
    assert asked("ComputeRunningProcesses") == (6, 6)
    assert asked("MigMode") == (2, 1)
    assert asked("TotalEnergyConsumption") == (2, 1), "at the border of what is measured, then once a minute"
    assert asked("Name") == (1, 0)


def test_a_field_that_is_not_supported_is_asked_once(recording: Any, clock: HandClock) -> None:
    field(recording, 186)["nvmlReturn"] = 3
    asked: list[list[int]] = []

    class Counting(RecordedNvml):
        def nvmlDeviceGetFieldValues(self, handle: int, wanted: list[int]) -> Any:  # noqa: N802  # pynvml's name
            asked.append(list(wanted))
            return self._device("nvmlDeviceGetFieldValues", "nvmlDeviceGetFieldValues", handle, (wanted,))

    reader = GpuReader(Counting(recording), clock)
    first = reader.sample().gpus[0]
    clock.time += 1
    again = reader.sample().gpus[0]

    assert first.power_now.unavailable == again.power_now.unavailable == "not supported by this GPU (NVML 3)"
    assert [186 in wanted for wanted in asked if 74 in wanted] == [True, True, False, True], "GPU 0, 1, 0, 1"


def test_rate_of_a_counter_of_32_bits_that_ran_over() -> None:
    first, second = read(2.0**32 - 1000, 10.0, "field 197"), read(1000.0, 10.02, "field 197")
    assert moved(first, second, 0.02).value == 100_000
    assert not moved(first, second, 0.07).known, "on a link of 64 GB/s it may have run over twice"
    assert moved(first, unavailable("lost", 10.02, "field 197"), 0.02).unavailable == "lost"


def test_both_readings_of_a_rate_lie_in_one_sample(recording: Any, clock: HandClock) -> None:
    asked: list[float] = []

    class Counting(RecordedNvml):
        """Its counter moves by 4 MB a reading."""

        def nvmlDeviceGetFieldValues(self, handle: int, wanted: list[int]) -> Any:  # noqa: N802  # pynvml's name
            if 197 in wanted and handle == 0:
                field(recording, 197)["value"]["uiVal"] += 4_000_000
                asked.append(time.monotonic())
            return self._device("nvmlDeviceGetFieldValues", "nvmlDeviceGetFieldValues", handle, (wanted,))

    reader = GpuReader(Counting(recording), clock)
    reader.sample()  # makes the handles
    clock.time += 31
    gpu = reader.sample().gpus[0]
    assert 0.02 <= asked[1] - asked[0] < 0.06
    assert gpu.pcie_sent.value == pytest.approx(4_000_000 / (asked[1] - asked[0]), rel=0.05)
    clock.time += 5
    assert reader.sample().gpus[0].pcie_sent == gpu.pcie_sent, "kept, with its time"
    assert len(asked) == 2


def test_xids_are_collected_from_the_beginning_on(recording: Any, clock: HandClock) -> None:
    events: list[Any] = []

    class Event:
        def __init__(self, device: int, number: int) -> None:
            self.device, self.eventData = device, number

    class WithEvents(RecordedNvml):
        def nvmlEventSetCreate(self) -> str:  # noqa: N802  # pynvml's name
            return "set"

        def nvmlDeviceRegisterEvents(self, handle: int, mask: int, events_set: str) -> None:  # noqa: N802
            assert (handle in {0, 1}, mask, events_set) == (True, 8, "set")

        def nvmlEventSetWait_v2(self, events_set: str, wait: int) -> Any:  # noqa: N802  # pynvml's name
            assert (events_set, wait) == ("set", 0), "the sample must not wait"
            if not events:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            return events.pop(0)

    recording["devices"][1]["nvmlDeviceGetUUID"] = {"value": "GPU-1"}
    reader = GpuReader(WithEvents(recording), clock)
    assert [gpu.xids.value for gpu in reader.sample().gpus] == [(), ()]
    events += [Event(1, 79), Event(1, 154)]
    assert [gpu.xids.value for gpu in reader.sample().gpus] == [(), (79, 154)]
    assert [gpu.xids.value for gpu in reader.sample().gpus] == [(), (79, 154)]


def test_kernel_tells_link_errors_distances_and_pressure(recording: Any, tmp_path: Path) -> None:
    write_files(json.loads((FIXTURES / "h200x2-files.json").read_text()), tmp_path)
    folder = "sys/bus/pci/devices/0000:00:06.0"
    write_files(
        {
            f"{folder}/aer_dev_correctable": "RxErr 3\nTOTAL_ERR_COR 7\n",
            f"{folder}/aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 1\n",
            f"{folder}/aer_dev_fatal": "TOTAL_ERR_FATAL 2\n",
            f"{folder}/local_cpulist": "0-15",
            "sys/devices/system/node/node0/distance": "10 21\n",
            "proc/pressure/memory": "some avg10=1.25 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00\n",
        },
        tmp_path,
    )
    state = HostSampler(RecordedNvml(recording), lambda: 5.0, tmp_path).sample()

    assert (state.gpus[0].aer_corrected.value, state.gpus[0].aer_uncorrected.value) == (7, 3)
    assert not state.gpus[1].aer_corrected.known, "a virtual machine does not tell"
    assert state.gpus[0].cpu_affinity.value == "0-15"
    assert state.gpus[1].cpu_affinity.value == "0-31", "the driver's word where the kernel says nothing"
    assert state.nodes[0].distances.value == (10, 21)
    assert state.pressure_memory.value == 1.25
    assert not state.pressure_io.known


@pytest.mark.parametrize(
    ("files", "limit", "used"),
    [
        (
            {
                "proc/self/cgroup": "0::/ns/app\n",
                "sys/fs/cgroup/ns/app/memory.max": "max",
                "sys/fs/cgroup/ns/app/memory.current": "5",
                "sys/fs/cgroup/ns/memory.max": "1000",
                "sys/fs/cgroup/ns/memory.current": "600",
            },
            1000,
            600,
        ),
        (
            {
                "proc/self/cgroup": "9:memory:/lxc/200\n1:name=systemd:/x\n",
                "sys/fs/cgroup/memory/lxc/200/memory.limit_in_bytes": "4096",
                "sys/fs/cgroup/memory/lxc/200/memory.usage_in_bytes": "1024",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
            },
            4096,
            1024,
        ),
        ({"proc/self/cgroup": "0::/\n"}, None, None),
    ],
)
def test_memory_limit_is_the_smallest_above_us(
    files: dict[str, str], limit: int | None, used: int | None, tmp_path: Path
) -> None:
    write_files(files, tmp_path)
    found = limits.memory_limit(tmp_path, 5.0)
    assert tuple(one.value for one in found) == (limit, used)


def test_openers_of_a_device_node(tmp_path: Path) -> None:
    me = tmp_path / f"proc/{os.getppid()}/fd"
    me.mkdir(parents=True)
    (me / "0").symlink_to("/dev/null")
    (me / "5").symlink_to("/dev/nvidia3")
    (me / "6").symlink_to("/dev/nvidia3")
    (me / "7").symlink_to("/dev/nvidiactl")
    found = device_openers(tmp_path)
    assert list(found) == [3]
    [opener] = found[3]
    assert isinstance(opener, DeviceOpener)
    assert (opener.pid, bool(opener.command)) == (os.getppid(), True)
