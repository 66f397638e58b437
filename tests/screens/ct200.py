"""A sweep as it would stand on the simulated CT200, event by event, and samples of its eight GPUs."""

import math
from collections.abc import Mapping
from typing import Any

from ddconsole.core import events as ev
from ddconsole.core.host_state import (
    DeviceOpener,
    GpuProcess,
    GpuState,
    HostState,
    NumaNode,
    PairState,
    RemappedRows,
)
from ddconsole.core.readings import read, unavailable
from ddconsole.core.records import CellProgress
from ddconsole.core.sweep import Cell, Deployment, Placement, Sampling, Speculative, WorkloadPoint, to_json
from tests.screens.fake_feed import FakeFeed

METHODS = {
    "ar": 28.4,
    "dflash": 100.1,
    "ddtree-b8": 108.3,
    "ddtree-b15": 124.2,
    "ddtree-b16": 123.1,
    "ddtree-b32": 81.0,
}
ACCEPTANCE = {"ar": 1.0, "dflash": 4.81, "ddtree-b8": 5.02, "ddtree-b15": 5.62, "ddtree-b16": 5.60, "ddtree-b32": 4.1}
PLACES = {1: (7,), 4: (4, 5, 6, 7), 8: tuple(range(8))}
SAMPLING = Sampling()


def points() -> list[WorkloadPoint]:
    """Three lengths, four concurrencies, two conversations."""
    found = [WorkloadPoint("generate", "single", "five", 1, length, 5, 5, SAMPLING) for length in (256, 1024, 2048)]
    found += [WorkloadPoint("concurrency", "closed-loop", "five", c, 512, 1, 8, SAMPLING) for c in (1, 2, 4, 8)]
    return found + [
        WorkloadPoint(name, "conversation", script, 1, 1024, 1, 5, SAMPLING)
        for name, script in (("calculator", "cli-calculator"), ("pipeline", "data-pipeline"))
    ]


def deployments(methods: Mapping[str, float] = METHODS) -> list[Deployment]:
    """One for each method and tensor-parallel size."""
    found: list[Deployment] = []
    for size, gpus in PLACES.items():
        for method in methods:
            speculative = Speculative("ddtree", int(method[8:])) if method.startswith("ddtree") else None
            args: dict[str, Any] = {
                "attention-backend": "triton",
                "mem-fraction-static": 0.85,
                "grammar-backend": "none",
            }
            if speculative is not None:
                args["speculative-ddtree-budget"] = speculative.budget
            name = f"d{len(found) + 1:02}"
            place = Placement(gpus, "numa")
            found.append(Deployment(name, method, size, 8, args, {}, place, speculative, context_tokens=8192))
    return found


def created(**changes: Any) -> ev.RunCreated:
    """The first event."""
    values: dict[str, Any] = {
        "run": "ddtree-ct200-0412",
        "plan_name": "ddtree-ct200",
        "plan_sha256": "0" * 64,
        "host": "ct200",
        "baseline": "ar",
        "simulated": False,
        "version": "0.1.0",
        "engine": "sglang",
        "protocol": {"launches": 1, "retries": 2},
    }
    return ev.RunCreated(**{**values, **changes})


def figures(rate: float, acceptance: float | None, requests: int = 25, tokens: int = 6400) -> dict[str, Any]:
    """Of a done attempt."""
    told = {"tokens": tokens, "steps": round(tokens / acceptance), "source": "request"} if acceptance else None
    return {
        "requests": requests,
        "succeeded": requests,
        "failed": 0,
        "output_tokens": tokens,
        "wall": tokens / rate,
        "output_rate": rate,
        "output_rate_spread": rate * 0.015,
        "server_rate": rate * 0.97,
        "ttft": 0.061,
        "tpot": 1 / rate,
        "chunk_gap": 3 / rate,
        "tokens_per_chunk": 3.0,
        "acceptance": told,
        "cached_tokens": 0,
        "estimated_tokens": False,
        "achieved_concurrency": 1.0,
    }


def feed(*, cells: int | None = None, simulated: bool = False) -> FakeFeed:
    """A run with all its cells pending; with `cells`, that many of them."""
    made = FakeFeed(simulated=simulated)
    made.emit(created(simulated=simulated), *(ev.DeploymentAdded(to_json(one)) for one in deployments()))
    number = 0
    wanted = cells if cells is not None else 6 * 3 * 9
    while number < wanted:
        for deployment in deployments():
            for point in points():
                number += 1
                if number <= wanted:
                    made.emit(ev.CellAdded(to_json(Cell(f"c{number:03}", deployment.id, point))))
    return made


def many_cells(methods: int, sizes: int, loads: int) -> FakeFeed:
    """A run of so many methods at so many tensor-parallel sizes with so many workload points, all of them measured."""
    made = FakeFeed()
    made.emit(created())
    names = ["ar", *(f"ddtree-b{number}" for number in range(1, methods))]
    asked = [WorkloadPoint("load", "closed-loop", "five", c, 512, 1, 8, SAMPLING) for c in range(1, loads + 1)]
    for size in range(sizes):
        for name in names:
            deployment = Deployment(f"d{size}-{name}", name, 2**size, 8, {}, {}, Placement((0,)))
            made.emit(ev.DeploymentAdded(to_json(deployment)))
            for point in asked:
                cell = f"c{len(made.state.cells) + 1:04}"
                result = figures(30.0 + len(made.state.cells) % 97, 2.0)
                made.emit(
                    ev.CellAdded(to_json(Cell(cell, deployment.id, point))),
                    ev.AttemptStarted(cell, 1, 1, 1, 0),
                    ev.AttemptDone(cell, 1, 1, "", "", result),
                )
    return made


def launch(made: FakeFeed, number: int, deployment: str, seconds: float = 95.0) -> None:
    """A server becomes ready."""
    made.emit(ev.LaunchPlanned(number, deployment, 1))
    made.emit(ev.LaunchStarting(number, "load weights", 0.4, pid=41000 + number, port=30000 + number), seconds=30)
    made.emit(
        ev.LaunchReady(number, EFFECTIVE, {"version": "0.5.16+ddtree"}, seconds, {"ok": True}), seconds=seconds - 30
    )


EFFECTIVE = {
    "attention_backend": "triton",
    "mem_fraction_static": 0.83,
    "max_running_requests": 8,
    "disable_overlap_schedule": True,
    "speculative_algorithm": "DDTREE",
    "tp_size": 1,
}


def done(made: FakeFeed, cell: str, launch_number: int, flags: tuple[str, ...] = ()) -> None:
    """A cell is measured."""
    row = made.state.cells[cell]
    method = made.state.deployments[row.cell.deployment].method
    slower = row.cell.point.concurrency**-0.2 * (1 + 0.02 * math.sin(int(cell[1:])))
    attempt = len(row.attempts) + 1
    made.emit(ev.AttemptStarted(cell, attempt, launch_number, 1, row.cell.revision))
    result = figures(METHODS[method] * slower, ACCEPTANCE[method] if method != "ar" else None)
    made.emit(ev.AttemptDone(cell, attempt, launch_number, "ab", "f", result, flags), seconds=45)


CUDA_MEMORY: dict[str, Any] = {
    "cause": "OOM-GRAPHS",
    "text": "CUDA out of memory while capturing graphs",
    "evidence": (
        "[2026-04-12 03:58:41 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=2.31 GB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.40 GiB. GPU 0 has 1.12 GiB free.",
    ),
    "do": "lower --mem-fraction-static, or capture graphs for fewer requests: --cuda-graph-max-bs",
    "retry": "change",
}


def midway(*, simulated: bool = False) -> FakeFeed:
    """A sweep in the middle: done, running, failed, unfit, blocked, skipped, pending."""
    made = feed(simulated=simulated)
    launch(made, 1, "d01")
    for number in range(1, 10):
        done(made, f"c{number:03}", 1)
    made.emit(ev.LaunchStopping(1, "asked (SIGINT)", made.clock + 20), ev.LaunchGone(1), seconds=3)
    launch(made, 2, "d02")
    for number in range(10, 19):
        done(made, f"c{number:03}", 2, flags=("clocks fell to 1.2 GHz for 4 s",) if number == 12 else ())
    made.emit(ev.LaunchStopping(2, "asked (SIGINT)", made.clock + 20), ev.LaunchGone(2), seconds=3)
    launch(made, 3, "d03")
    for number in range(19, 23):
        done(made, f"c{number:03}", 3)
    made.emit(ev.AttemptStarted("c023", 1, 3, 1, 0))
    made.emit(ev.AttemptFailed("c023", 1, 3, **CUDA_MEMORY), seconds=20)
    for number in range(24, 28):
        done(made, f"c{number:03}", 3)
    made.emit(ev.LaunchStopping(3, "asked (SIGINT)", made.clock + 20), ev.LaunchGone(3), seconds=3)
    made.emit(ev.LaunchPlanned(4, "d06", 1))
    made.emit(ev.LaunchStarting(4, "load weights", 0.9, pid=41004, port=30004), seconds=30)
    unrecognised = "error: unrecognized arguments: --speculative-ddtree-budget 32"
    made.emit(
        ev.LaunchFailed(
            4,
            "ARG-UNRECOGNIZED",
            "the build does not know --speculative-ddtree-budget",
            (unrecognised,),
            "take the flag out (E), or point the plan's engine.python at the patched build",
            "change",
        ),
        ev.LaunchGone(4),
    )
    made.emit(ev.CellsUnfit(("c161", "c162"), "recurrent state alone needs 74.6 GiB, 35.1 GiB are left"))
    skipped = tuple(f"c{number:03}" for number in range(100, 109))
    made.emit(ev.CellsSkipped(skipped, "plan", "recurrent-state leakage seen at TP1"))
    made.emit(ev.DebtTaken("unit:ddtree-gpu0", "ddtree-gpu0.service"))
    launch(made, 5, "d04")
    done(made, "c028", 5)
    made.emit(ev.AttemptStarted("c029", 1, 5, 1, 0))
    made.clock += 31
    for number, rate in enumerate((0.0, 60.1, 95.2, 118.0, 121.4, 122.0, 121.2, 121.7)):
        made.set_progress(CellProgress("c029", 1, 9 + number, 25, 0, 1, rate, made.clock), rate, acceptance=5.62)
    made.set_host(*(machine(made.clock - 240 + second, second) for second in range(0, 240, 4)))
    for number in range(1, 7):
        made.log(number, *server_lines(number))
    return made


def server_lines(launch_number: int) -> list[str]:
    """What SGLang prints."""
    lines = [
        "[2026-04-12 04:10:02] server_args=ServerArgs(model_path='/dev/shm/Qwen3.6-27B', attention_backend='triton')",
        "[2026-04-12 04:10:09 TP0] Load weight begin. avail mem=93.81 GB",
        "\rLoading safetensors checkpoint shards:  50% 4/8\rLoading safetensors checkpoint shards: 100% 8/8",
        "[2026-04-12 04:10:41 TP0] WARNING: overlap scheduler is off under speculation",
    ]
    lines += [
        f"[2026-04-12 04:{11 + n // 60}:{n % 60:02} TP0] Decode batch, #running-req: 1, #token: {300 + n * 40}, "
        f"accept len: 5.{n % 10}2, gen throughput (token/s): {118 + n % 7}.71, #queue-req: 0"
        for n in range(60)
    ]
    if launch_number in {3, 4}:
        lines += ["Traceback (most recent call last):", *CUDA_MEMORY["evidence"]]
    return lines


GIB = 1 << 30


def gpu(index: int, at: float, *, busy: bool = False, seconds: int = 0, node: int | None = None) -> GpuState:
    """One card."""
    wave = 90 + 10 * math.sin(seconds / 9) if busy else 0
    return GpuState(
        index=index,
        uuid=read(f"GPU-{index:08x}", at, "nvml"),
        name=read("NVIDIA RTX PRO 6000 Blackwell Server Edition", at, "nvml"),
        pci_address=read(f"0000:{index:02x}:00.0", at, "nvml"),
        memory_total=read(95 * GIB, at, "nvml"),
        memory_used=read(round((83.2 if busy else 0.4) * GIB), at, "nvml"),
        memory_free=read(round((11.8 if busy else 94.6) * GIB), at, "nvml"),
        utilisation=read(round(wave), at, "nvml"),
        power=read(312.0 if busy else 34.0, at, "nvml"),
        power_limit=read(600.0, at, "nvml"),
        energy=unavailable("not supported", at, "nvml"),
        temperature=read(61 if busy else 33, at, "nvml"),
        sm_clock=read(1980 if busy else 180, at, "nvml"),
        sm_clock_max=read(2430, at, "nvml"),
        clock_event_reasons=read(0 if busy else 1, at, "nvml"),
        pcie_generation=read(5 if busy else 1, at, "nvml"),
        pcie_width=read(16, at, "nvml"),
        pcie_generation_max=read(5, at, "nvml"),
        pcie_width_max=read(16, at, "nvml"),
        pcie_generation_card=read(5, at, "nvml"),
        numa_node=read(node if node is not None else index // 4, at, "sysfs"),
        compute_capability=read((12, 0), at, "nvml"),
        processes=read((GpuProcess(41005, round(82.9 * GIB)),) if busy else (), at, "nvml"),
        openers=read((DeviceOpener(41005, "root", "sglang::scheduler_TP0"),) if busy else (), at, "/proc/*/fd"),
        power_now=read(318.0 if busy else 34.0, at, "field 186"),
        power_capped=read(12.5 if busy else 0.0, at, "field 74"),
        thermally_slowed=read(0.0, at, "field 269"),
        pcie_sent=read(2.1e9 if busy else 1e4, at, "field 197"),
        pcie_received=read(3.4e9 if busy else 2e4, at, "field 198"),
        pcie_replays=read(0, at, "field 94"),
        aer_corrected=read(0, at, "sysfs"),
        aer_uncorrected=read(0, at, "sysfs"),
        ecc_corrected=read(0, at, "nvml"),
        ecc_uncorrected=read(0, at, "nvml"),
        remapped_rows=read(RemappedRows(0, 0, pending=False, failed=False), at, "nvml"),
        recovery_action=read("none", at, "field 230"),
        xids=read((), at, "nvml"),
        persistence=read(value=True, at=at, source="nvml"),
    )


def machine(at: float, seconds: int = 0, gpus: int = 8, busy: tuple[int, ...] = (7,)) -> HostState:
    """A sample of the host with so many cards on two nodes."""
    half = max(1, gpus // 2)
    cards = tuple(gpu(n, at, busy=n in busy, seconds=seconds, node=min(1, n // half)) for n in range(gpus))
    nodes = tuple(
        NumaNode(
            node,
            read(f"{node * 32}-{node * 32 + 31},{64 + node * 32}-{95 + node * 32}", at, "sysfs"),
            read(378 * GIB, at, "sysfs"),
            read((310 - 90 * node) * GIB, at, "sysfs"),
            tuple(card.index for card in cards if card.numa_node.value == node),
            read((10, 32) if node == 0 else (32, 10), at, "sysfs"),
        )
        for node in range(2)
    )
    pairs = tuple(
        PairState(
            a,
            b,
            read("NODE" if cards[a].numa_node == cards[b].numa_node else "SYS", at, "nvml"),
            read("ok", at, "nvml"),
            read(value=False, at=at, source="nvml"),
            read("ok", at, "nvml"),
            read("not supported", at, "nvml"),
        )
        for a in range(gpus)
        for b in range(a + 1, gpus)
    )
    count = read(gpus, at, "nvml") if gpus else unavailable("NVML is not installed on this machine", at, "nvml")
    return HostState(
        at=at,
        hostname=read("ct200", at, "uname"),
        boot_token=read("b00t", at, "proc"),
        driver=read("580.82.07", at, "nvml") if gpus else unavailable("no driver", at, "nvml"),
        cuda_driver=read("13.0", at, "nvml"),
        gpu_count=count,
        gpus=cards,
        nodes=nodes,
        pairs=pairs,
        cpu_count=read(128, at, "os"),
        cpus_allowed=read(128, at, "os"),
        cpu_percent=read(12.0 + 5 * math.sin(seconds / 20), at, "psutil"),
        load=read((14.2, 13.8, 11.0), at, "os"),
        memory_total=read(755 * GIB, at, "psutil"),
        memory_available=read(520 * GIB, at, "psutil"),
        shm_total=read(378 * GIB, at, "statvfs"),
        shm_free=read(240 * GIB, at, "statvfs"),
        pressure_memory=read(0.0, at, "proc"),
        pressure_io=read(0.0, at, "proc"),
        network_sent=read(3.1e4, at, "psutil"),
        network_received=read(2.2e3, at, "psutil"),
        probe_cpu=read(0.4, at, "process_time"),
        quiet=bool(busy),
    )


FINDINGS: list[dict[str, Any]] = [
    {"id": "host-reachable", "proves": "the host answers", "outcome": "pass", "observed": "12 ms", "blocks": True},
    {
        "id": "gpu-count",
        "proves": "as many GPUs as the plan expects",
        "outcome": "pass",
        "observed": "8 GPUs",
        "expected": "8",
        "blocks": True,
    },
    {
        "id": "memory-free",
        "proves": "GPU memory is free where the plan needs it",
        "outcome": "fail",
        "observed": "GPU 0: 61.2 GiB held by pid 2210 (python, user mara)",
        "expected": "below 1 GiB on GPU 0-7",
        "evidence": ["pid 2210  /opt/venv/bin/python train.py"],
        "remedy": "ask mara, or take GPU 0 out of the plan's placement",
        "blocks": True,
    },
    {
        "id": "numa-crossing",
        "proves": "no placement crosses NUMA nodes without need",
        "outcome": "warn",
        "observed": "TP8 spans NUMA 0 and 1",
        "expected": "one node",
        "remedy": "nothing: eight GPUs are on two nodes",
        "blocks": False,
    },
    {
        "id": "attention-backend",
        "proves": "the attention backend fits the GPU",
        "outcome": "unknown",
        "observed": "the build's --help did not answer within 30 s",
        "remedy": "run it by hand",
        "blocks": True,
    },
    {
        "id": "model-complete",
        "proves": "the model is whole where the plan says it is",
        "outcome": "pass",
        "observed": "11 of 11 shards, 53.8 GiB",
        "blocks": True,
    },
    {"id": "disk", "proves": "there is room for results", "outcome": "skip", "observed": "not asked", "blocks": False},
]
