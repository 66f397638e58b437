"""Placements, and what decides whether two results compare."""

from dataclasses import replace
from typing import Any

import pytest

from ddconsole.core.fingerprint import differences, fingerprint, fingerprint_parts
from ddconsole.core.placement import crosses_numa, default_placement, nodes_of, placement_problem
from ddconsole.core.sweep import Deployment, Placement, Sampling, WorkloadPoint

NODES = {0: 0, 1: 0, 2: 1, 3: 1, 4: None, 5: -1}


@pytest.mark.parametrize(
    ("gpus", "crosses"),
    [((0, 1), False), ((0, 2), True), ((0, 1, 2, 4), True), ((0, 4), None), ((5,), None), ((9,), None), ((), False)],
)
def test_whether_a_placement_crosses_numa_nodes(gpus: tuple[int, ...], crosses: bool | None) -> None:
    assert crosses_numa(gpus, NODES) is crosses


def test_the_nodes_of_a_placement_as_far_as_known() -> None:
    assert nodes_of((3, 0, 4, 5), NODES) == (0, 1)


def test_the_default_is_the_first_gpus() -> None:
    assert default_placement(2, "numa") == Placement((0, 1), "numa")


@pytest.mark.parametrize(
    ("gpus", "size", "count", "problem"),
    [
        ((4, 5), 2, 8, None),
        ((4, 4), 2, 8, "GPU 4 is named twice"),
        ((4,), 2, 8, "size 2 needs 2 GPUs, 1 are named"),
        ((8,), 1, 8, "there is no GPU 8: the host has 8, counted from 0"),
        ((8,), 1, None, None),
    ],
)
def test_what_is_wrong_with_a_placement(
    gpus: tuple[int, ...], size: int, count: int | None, problem: str | None
) -> None:
    assert placement_problem(gpus, size, count) == problem


POINT = WorkloadPoint("load", "closed-loop", "five", 4, 256, 1, 16, Sampling())
SERVER = Deployment("d01", "ar", 1, 4, {"page-size": 16}, {"A": "1"}, Placement((7,), "numa"), context_tokens=4096)
BUILD = {"version": "0.5.23", "commit": "abc"}
CONTEXT = {"driver": "580.1", "model": {"path": "/m", "config": "f00"}, "texts": "cafe"}


def parts(server: Deployment = SERVER, point: WorkloadPoint = POINT, **context: Any) -> dict[str, Any]:
    return fingerprint_parts(deployment=server, point=point, build=BUILD, context={**CONTEXT, **context})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (parts(replace(SERVER, args={"page-size": 32})), ["deployment.args.page-size: 16 → 32"]),
        (parts(replace(SERVER, env={})), ['deployment.env.A: "1" → –']),
        (parts(replace(SERVER, placement=Placement((6,), "numa"))), ["deployment.placement.gpus: [7] → [6]"]),
        (parts(replace(SERVER, size=8)), ["deployment.size: 4 → 8"]),
        (parts(point=replace(POINT, max_tokens=512)), ["workload.max_tokens: 256 → 512"]),
        (parts(point=replace(POINT, sampling=Sampling(temperature=1.0))), ["workload.sampling.temperature: 0.0 → 1.0"]),
        (parts(driver="590.2"), ['driver: "580.1" → "590.2"']),
        (parts(model={"path": "/m", "config": "bad"}), ['model.config: "f00" → "bad"']),
    ],
)
def test_what_makes_another_fingerprint_is_named(other: dict[str, Any], told: list[str]) -> None:
    assert fingerprint(other) != fingerprint(parts())
    assert differences(parts(), other) == told


@pytest.mark.parametrize(
    "other",
    [
        parts(replace(SERVER, id="d09")),
        parts(replace(SERVER, context_tokens=8192)),
        parts(point=replace(POINT, request_timeout=1.0, stall_timeout=1.0)),
        dict(reversed(parts().items())),
    ],
)
def test_what_changes_no_figure_changes_no_fingerprint(other: dict[str, Any]) -> None:
    assert fingerprint(other) == fingerprint(parts())
    assert differences(parts(), other) == []
