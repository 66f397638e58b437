"""The machine as text. Hosts of other sizes are synthetic: the recorded H200 repeated."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.host_state import HostState
from ddconsole.probe.host_text import bar, host_lines
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler
from ddconsole.probe.sysfs import numa_nodes

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"


def synthetic_host(gpus: int, root: Path, **changes: Any) -> HostState:
    recording = json.loads((FIXTURES / "h200x2.json").read_text())
    model = recording["devices"][0] | changes
    half = max(gpus // 2, 1)
    devices = []
    for index in range(gpus):
        device = copy.deepcopy(model)
        device["nvmlDeviceGetPciInfo_v3"] = {"value": {"busId": f"00000000:{index + 16:02X}:00.0"}}
        device["nvmlDeviceGetMemoryAffinity"] = {"value": [1 << (index // half if gpus > 1 else 0)]}
        devices.append(device)
    pairs = [
        {
            "a": a,
            "b": b,
            "common_ancestor": {"value": 40 if a // half == b // half else 50},
            "p2p[0]": {"value": 0},
            "p2p[2]": {"value": 5},
        }
        for a in range(gpus)
        for b in range(a + 1, gpus)
    ]
    synthetic = recording | {"devices": devices, "pairs": pairs, "nvmlDeviceGetCount": {"value": gpus}}
    for node in (0, 1):
        folder = root / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpulist").write_text(f"{node * 64}-{node * 64 + 63}\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:  263998500 kB\nNode {node} MemFree:  131999250 kB\n")
    return HostSampler(RecordedNvml(synthetic), lambda: 5.0, root).sample()


@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 16])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_size_fits_every_width(gpus: int, width: int, tmp_path: Path) -> None:
    lines = host_lines(synthetic_host(gpus, tmp_path), width)

    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    for index in range(gpus):
        assert f"GPU {index} " in text
    assert "NUMA 0" in text
    assert "NUMA 1" in text


def test_eight_gpus_at_80_columns_show_node_link_and_bars(tmp_path: Path) -> None:
    lines = host_lines(synthetic_host(8, tmp_path), 80)

    node = next(line for line in lines if "NUMA 1" in line)
    assert "CPUs 64-127" in node
    assert "███░░░ 125.9/251.8 GiB" in node
    below = lines[lines.index(node) + 1]
    assert "GPU 4 " in below
    assert any("PCIe 5x16 of 5x16" in line for line in lines)
    assert any("345/1980 MHz" in line and "34 °C" in line and "idle" in line for line in lines)
    assert "  NODE, P2P ok: among 0-3 and among 4-7" in lines
    assert "  SYS, P2P ok: 0-3 to 4-7" in lines


def test_a_node_s_page_cache_is_not_used_memory_as_in_the_head(tmp_path: Path) -> None:
    state = synthetic_host(1, tmp_path)
    (tmp_path / "sys/devices/system/node/node0/meminfo").write_text(
        "Node 0 MemTotal:  104857600 kB\nNode 0 MemFree:  10485760 kB\nNode 0 Inactive:  41943040 kB\n"
        "Node 0 Active(anon):  52428800 kB\nNode 0 Active(file):  31457280 kB\nNode 0 Inactive(file):  5242880 kB\n"
        "Node 0 Shmem:  41943040 kB\nNode 0 SReclaimable:  5242880 kB\n"
    )
    (node, *_) = numa_nodes(tmp_path, {}, 5.0)
    assert node.memory_free.require() == (10485760 + 31457280 + 5242880 + 5242880) * 1024

    lines = host_lines(replace(state, nodes=(node,)), 100)
    assert any("50.0/100.0 GiB" in line for line in lines)


def test_what_is_not_there_says_why(tmp_path: Path) -> None:
    lines = host_lines(synthetic_host(2, tmp_path, nvmlDeviceGetPowerUsage={"error": "Not Supported", "code": 3}), 100)

    assert any("?/700 W" in line for line in lines)
    assert "  power (GPU 0-1): not supported by this GPU (NVML 3)" in lines


def test_lost_gpu_holder_of_memory_and_slow_slot_are_seen(tmp_path: Path) -> None:
    held = {"value": [{"pid": 4242, "usedGpuMemory": 3 << 30}]}
    state = synthetic_host(
        1,
        tmp_path,
        nvmlDeviceGetComputeRunningProcesses_v3=held,
        nvmlDeviceGetMaxPcieLinkGeneration={"value": 4},
    )
    text = "\n".join(host_lines(state, 80))
    assert "held by pid 4242 3.0 GiB" in text
    assert "PCIe 5x16 of 4x16 (card 5)" in text

    lost = synthetic_host(1, tmp_path, nvmlDeviceGetMemoryInfo_v2={"error": "GPU is lost", "code": 15})
    assert "not answering: the GPU is lost" in "\n".join(host_lines(lost, 80))


def test_escape_sequences_in_names_are_not_obeyed(tmp_path: Path) -> None:
    state = synthetic_host(1, tmp_path, nvmlDeviceGetName={"value": "NVIDIA \x1b[31mred"})

    assert not any("\x1b" in line for line in host_lines(state, 80))


def test_no_driver_is_said_in_the_head(tmp_path: Path) -> None:
    recording = {"nvmlInit": {"error": "", "code": 12}, "devices": [], "pairs": []}
    state = HostSampler(RecordedNvml(recording), lambda: 5.0, tmp_path).sample()

    assert "no GPUs: no NVIDIA driver library" in host_lines(state, 80)[0]


def test_bars() -> None:
    assert bar(None, 4) == "····"
    assert bar(0, 4) == "░░░░"
    assert bar(0.5, 4) == "██░░"
    assert bar(7, 4) == "████"
