import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from ddconsole.probe.nvml import GpuReader
from ddconsole.rehearsal.host import GPUS, MEMORY_BYTES, host_facts, write_host_tree
from ddconsole.rehearsal.nvml import SimulatedNvml, is_rehearsal
from ddconsole.rehearsal.processes import start_ticks
from ddconsole.rehearsal.state import Holder, write_holder

GIB = 1024**3


class HandClock:
    """A clock that the test moves."""

    time = 500.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def real_seconds(self, seconds: float) -> float:
        return seconds


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDCONSOLE_REHEARSAL", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def nvml(state: Path, clock: HandClock) -> SimulatedNvml:
    library = SimulatedNvml(clock)
    library.nvmlInit()
    return library


def hold(state: Path, gpu: int, pid: int, gib: int, utilisation: int = 0) -> None:
    ticks = start_ticks(pid)
    assert ticks is not None
    write_holder(state, gpu, Holder(pid, ticks, gib * GIB, utilisation))


def test_the_cards_are_those_of_the_host_and_say_that_they_are_simulated(nvml: SimulatedNvml) -> None:
    assert nvml.nvmlDeviceGetCount() == 8
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(8)]
    names = {nvml.nvmlDeviceGetName(handle) for handle in handles}
    assert names == {"NVIDIA RTX PRO 6000 Blackwell Server Edition (simulated)"}
    assert len({nvml.nvmlDeviceGetUUID(handle) for handle in handles}) == 8
    assert [nvml.nvmlDeviceGetNumaNodeId(handle) for handle in handles] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert nvml.nvmlDeviceGetCudaComputeCapability(handles[0]) == (12, 0)
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[3]) == pynvml.NVML_TOPOLOGY_NODE
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[4]) == pynvml.NVML_TOPOLOGY_SYSTEM
    assert nvml.NVML_TOPOLOGY_SYSTEM == pynvml.NVML_TOPOLOGY_SYSTEM


def test_errors_are_pynvml_s(state: Path, nvml: SimulatedNvml) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(8)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        SimulatedNvml().nvmlDeviceGetCount()


def test_memory_is_that_of_living_processes_and_goes_shortly_after_them(
    state: Path, nvml: SimulatedNvml, clock: HandClock
) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(5)
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    hold(state, 5, child.pid, 40)
    hold(state, 5, os.getpid(), 3)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    assert memory.used == 43 * GIB
    assert memory.used + memory.free + memory.reserved == memory.total == MEMORY_BYTES
    assert {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)} == {child.pid, os.getpid()}
    child.communicate()
    assert nvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).used == 43 * GIB
    assert [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [os.getpid()]
    clock.time += 0.25
    assert nvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).used == 3 * GIB
    assert not list((state / "gpu5").glob(f"{child.pid}*"))


def test_a_pid_that_belongs_to_another_process_now_holds_nothing(state: Path, nvml: SimulatedNvml) -> None:
    write_holder(state, 2, Holder(os.getpid(), (start_ticks(os.getpid()) or 0) - 1, GIB, 50))
    handle = nvml.nvmlDeviceGetHandleByIndex(2)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_power_follows_use_and_energy_is_its_sum(state: Path, nvml: SimulatedNvml, clock: HandClock) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 34_000
    before = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    hold(state, 1, os.getpid(), 60, utilisation=100)
    nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    clock.time += 10
    drawn = nvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before
    watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    assert 300 < watts < nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    assert drawn == pytest.approx(10_000 * watts)
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 100


NOT_NVML = {"aer_corrected", "aer_uncorrected", "openers"}
"""The kernel's word: the sampler adds it."""
NOT_SIMULATED = {"pcie_sent", "pcie_received", "xids"}


@pytest.mark.usefixtures("state")
def test_the_probe_reads_it_as_it_reads_the_real_one() -> None:
    sample = GpuReader(SimulatedNvml(), lambda: 1.0).sample()
    assert is_rehearsal()
    assert sample.driver.require() == "580.159.04"
    assert len(sample.gpus) == 8
    assert [gpu.numa_node.require() for gpu in sample.gpus] == [gpu.numa_node for gpu in GPUS]
    unread = [
        f"{name} of GPU {gpu.index}: {getattr(gpu, name).unavailable}"
        for gpu in sample.gpus
        for name in gpu.__dataclass_fields__
        if name not in {"index", *NOT_NVML, *NOT_SIMULATED} and not getattr(gpu, name).known
    ]
    assert unread == []
    assert {pair.common_ancestor.require() for pair in sample.pairs} == {"NODE", "SYS"}


def test_the_host_tree_names_the_same_nodes_as_the_cards(tmp_path: Path) -> None:
    write_host_tree(tmp_path, service_on_gpu0=True)
    for gpu in GPUS:
        node = (tmp_path / "sys/bus/pci/devices" / gpu.sysfs_address / "numa_node").read_text(encoding="ascii")
        assert int(node) == gpu.numa_node
    facts = host_facts(service_on_gpu0=True)
    assert [node["gpus"] for node in facts["nodes"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert facts["simulated"] is True
    assert facts["units"][0]["active"] is True
