"""Putting load on GPUs: what the child says, which GPUs are left alone, and what a missing torch is."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from broken_hosts import SOMEBODY
from one_check import plan
from synthetic_host import SyntheticHost

from ddconsole.preflight import load_child
from ddconsole.preflight.checks.load_torch import has_kernels
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.load_report import load_report
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.put_load import is_idle, put_load

LINES = [
    {"begin": "copy", "gpu": 0, "at": 10.0},
    {"copy": {"to_gpu": 55.0, "from_gpu": 54.0}, "gpu": 0, "at": 14.0},
    {"begin": "compute", "gpu": 0, "at": 14.0},
    {"compute": {"tflops": 400.0, "exact": True}, "gpu": 0, "at": 18.0},
    {"begin": "peer", "pair": [0, 1], "at": 18.0},
]
SUM = {"exact": True, "latency_us": 41.5, "rate": 38.2, "ways": {"P2P/CUMEM": 4}}
"""Torch sees GPU 6 as its first, GPU 7 as its second; the copy between them hangs."""


def text(lines: Sequence[Mapping[str, object]]) -> str:
    return "a warning of the driver\n" + "".join(json.dumps(line) + "\n" for line in lines)


def test_figures_carry_the_hosts_numbers_and_a_hang_is_named() -> None:
    report = load_report(text(LINES), ended=False, gpus=(6, 7), busy=(5,), samples=(), seconds=180.0)

    assert report.copies == {6: {"to_gpu": 55.0, "from_gpu": 54.0}}
    assert report.windows["compute", 6] == (14.0, 18.0)
    assert report.hung == "a copy from GPU 6 to GPU 7"


def test_all_reduce_of_a_group_and_one_that_hangs() -> None:
    about: dict[str, object] = {"torch": {"version": "2.9.1", "available": True}}
    lines: list[Mapping[str, object]] = [
        about,
        {"begin": "all-reduce", "group": [0, 1]},
        {"all-reduce": SUM, "group": [0, 1], "at": 1.0},
    ]

    report = load_report(text([*lines, {"done": True}]), ended=True, gpus=(6, 7), busy=(), samples=(), seconds=9.0)
    hung = load_report(text(lines[:2]), ended=False, gpus=(6, 7), busy=(), samples=(), seconds=220.0)

    assert report.collectives == {(6, 7): SUM}
    assert report.torch == about["torch"]
    assert (report.problem, report.hung) == ("", "")
    assert hung.hung == "all-reduce on GPU 6, 7"


FAKE_TORCH = """
import os, sys, time
class _Values:
    def __init__(self, value): self.value = value
    def __eq__(self, other): return _Values(self.value == other)
    def all(self): return self.value
    def item(self): return self.value
float32 = None
def full(shape, value, device): return _Values(value)
def ones_like(values): return _Values(1.0)
class Flag(_Values): pass
def tensor(values, device): return Flag(values[0])
class cuda:
    set_device = synchronize = staticmethod(lambda *_: None)
"""
FAKE_DISTRIBUTED = """
import json, os, sys, time, torch
rank = json.loads(sys.argv[1])["rank"]
def init_process_group(backend, init_method, rank, world_size, timeout):
    globals()["world"] = world_size
    with open(os.environ["NCCL_DEBUG_FILE"].replace("%p", str(rank)), "w") as log:
        log.write("host:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\\n")
    if rank == 1 and os.environ.get("FAKE") == "dies":
        raise RuntimeError("DistBackendError: NCCL error in: ncclSystemError")
    if rank == 1 and os.environ.get("FAKE") == "hangs":
        time.sleep(600)
def all_reduce(values):
    wrong = 1 if os.environ.get("FAKE") == "wrong" else 0
    values.value = values.value * world if isinstance(values, torch.Flag) else world * (world + 1) // 2 + wrong
def barrier(): pass
def destroy_process_group(): pass
"""


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose ranks need no GPU: what is tested is how they are started, judged and ended."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(FAKE_TORCH)
    (folder / "distributed.py").write_text(FAKE_DISTRIBUTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("fake_torch")
def test_ranks_that_die_or_hang_are_told_from_those_that_are_through(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = load_child._all_reduce([0, 1])
    monkeypatch.setenv("FAKE", "wrong")
    wrong = load_child._all_reduce([0, 1])
    monkeypatch.setenv("FAKE", "dies")
    dead = load_child._all_reduce([0, 1])
    monkeypatch.setenv("FAKE", "hangs")
    monkeypatch.setattr(load_child, "_GROUP_DEADLINE", 3.0)
    hung = load_child._all_reduce([0, 1])

    assert (fine["exact"], wrong["exact"]) == (True, False)
    assert fine["rate"] > 0
    assert fine["ways"] == {"SHM/direct/direct": 2}
    assert "ncclSystemError" in dead["problem"]
    assert dead["problem"].startswith("rank 1 ended with 1")
    assert hung["hung"] == 3.0


@pytest.mark.parametrize(
    ("kernels", "capability", "runs"),
    [
        (["sm_80", "sm_90", "sm_120"], (12, 0), True),
        (["sm_80", "sm_90"], (12, 0), False),
        (["sm_80", "compute_90"], (12, 0), True),
        (["compute_120"], (9, 0), False),
        (["sm_120"], (12, 1), True),
        (["sm_121"], (12, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_100a"], (12, 0), False),
        (["gfx942"], (9, 0), False),
    ],
)
def test_which_kernels_run_on_which_card(kernels: list[str], capability: tuple[int, int], runs: bool) -> None:
    """By CUDA's rules of binary and PTX compatibility."""
    assert has_kernels(kernels, capability) is runs


def test_child_that_dies_is_a_problem_and_no_hang() -> None:
    report = load_report(text(LINES), ended=True, gpus=(6, 7), busy=(), samples=(), seconds=3.0)

    assert (report.hung, report.problem) == ("", "it ended before it was through")


def test_a_gpu_that_somebody_uses_or_of_which_nothing_is_known_is_not_idle(synthetic_host: SyntheticHost) -> None:
    busy = {"nvmlDeviceGetUtilizationRates": {"value": {"gpu": 40, "memory": 1}}}
    blind = {"nvmlDeviceGetComputeRunningProcesses_v3": {"error": "", "code": 4}}

    host = synthetic_host({4: SOMEBODY, 5: busy, 6: blind})

    assert [gpu.index for gpu in host.gpus if is_idle(gpu)] == [0, 1, 2, 3, 7]


async def test_environment_without_torch_is_said(facts: Facts) -> None:
    here = replace(facts, machine=LocalMachine())

    report = await put_load(plan(here, engine_command=(sys.executable, "-m", "sglang.launch_server")))
    script = await put_load(plan(here, engine_command=("/opt/serve",)))

    assert "no torch in the serving environment" in report.problem
    assert report.gpus == (4, 5, 6, 7)
    assert "names no interpreter" in script.problem


class Watched(LocalMachine):
    """Keeps what it was asked to run."""

    def __init__(self) -> None:
        self.environment: Mapping[str, str] = {}
        self.argv: Sequence[str] = ()

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        assert deadline > 0
        self.argv, self.environment = argv, environment or {}
        return Ran(0, text([{"problem": "enough"}]), "", 0.1)


async def test_only_idle_gpus_are_shown_to_it_and_only_pairs_of_a_group(
    facts: Facts, synthetic_host: SyntheticHost
) -> None:
    machine = Watched()

    report = await put_load(replace(facts, machine=machine, host=synthetic_host({6: SOMEBODY})))
    nobody = await put_load(replace(facts, machine=machine, host=synthetic_host(dict.fromkeys(range(8), SOMEBODY))))

    assert machine.environment["CUDA_VISIBLE_DEVICES"] == "4,5,7"
    assert json.loads(machine.argv[-1])["pairs"] == [[0, 1], [0, 2], [1, 2]]
    assert json.loads(machine.argv[-1])["groups"] == [], "a group is added up whole or not at all"
    assert report.busy == (6,)
    assert nobody.problem == "no needed GPU is idle"
