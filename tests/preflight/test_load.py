"""Putting load on GPUs: what the child says, which GPUs are left alone, and what a missing torch is."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from broken_hosts import SOMEBODY
from one_check import plan
from synthetic_host import SyntheticHost

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
"""Torch sees GPU 6 as its first, GPU 7 as its second; the copy between them hangs."""


def text(lines: Sequence[Mapping[str, object]]) -> str:
    return "a warning of the driver\n" + "".join(json.dumps(line) + "\n" for line in lines)


def test_figures_carry_the_hosts_numbers_and_a_hang_is_named() -> None:
    report = load_report(text(LINES), ended=False, gpus=(6, 7), busy=(5,), samples=(), seconds=180.0)

    assert report.copies == {6: {"to_gpu": 55.0, "from_gpu": 54.0}}
    assert report.windows["compute", 6] == (14.0, 18.0)
    assert report.hung == "a copy from GPU 6 to GPU 7"


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
    assert report.busy == (6,)
    assert nobody.problem == "no needed GPU is idle"
