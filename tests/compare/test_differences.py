"""How often the verdicts are wrong, on synthetic launches whose truth is known."""

from collections.abc import Sequence

import numpy as np
import pytest

from ddconsole.compare.differences import Difference, Verdict, difference_of, judged
from ddconsole.compare.side import BY_ID, ComparedCell
from ddconsole.core.states import CellPhase
from ddconsole.core.sweep import Deployment, Placement, Sampling, WorkloadPoint
from ddconsole.report.launch_interval import p_of_ratio, p_of_t, t_quantile
from ddconsole.report.result_set import point_key
from ddconsole.report.statistics import Observations

RATE = BY_ID["output_rate"]
POINT = WorkloadPoint("generate", "single", "five", 1, 256, 2, 5, Sampling())
TOLD = {Verdict.REGRESSED, Verdict.IMPROVED}


def cell(dice: np.random.Generator, server: int, truth: float, launches: int) -> ComparedCell:
    """A cell of a server of its own; the prompts are the same in every run."""
    deployment = Deployment(f"d{server}", f"m{server}", 1, 8, {}, {}, Placement())
    prompts = np.linspace(3.3, 3.5, 5)
    noise = dice.normal(0, 0.01, (launches, 1, 1)) + dice.normal(0, 0.005, (launches, 2, 5))
    values = np.exp(prompts + np.log(truth) + noise)
    keys = tuple((f"p{number}", 0) for number in range(5))
    observed = {"output_rate": Observations(values, np.full(launches, 2), keys)}
    place = (deployment.method, 1, point_key(POINT), 0)
    numbers = tuple(range(1, launches + 1))
    return ComparedCell("c", place, deployment, POINT, launches, CellPhase.DONE, numbers, observed, False, ())


def verdicts(dice: np.random.Generator, truths: Sequence[float], launches: int = 4) -> list[Verdict]:
    found: list[Difference] = []
    for number, truth in enumerate(truths):
        one = difference_of(cell(dice, number, 1.0, launches), cell(dice, number, truth, launches), RATE)
        assert one is not None
        found.append(one)
    cells, _ = judged(found, RATE)
    return [one.verdict for one in cells]


def test_runs_that_do_not_differ_are_told_to_in_one_of_twenty_at_most() -> None:
    dice = np.random.default_rng(3)
    wrong = sum(bool(TOLD & set(verdicts(dice, [1.0] * 30))) for _ in range(80))
    assert wrong <= 0.125 * 80  # 5 % are expected, and three standard errors more are allowed


def test_of_the_cells_that_are_told_as_changed_one_in_twenty_at_most_is_none() -> None:
    dice = np.random.default_rng(4)
    truths = [0.95] * 10 + [1.0] * 20
    shares, found = [], 0
    for _ in range(30):
        told = [verdict in TOLD for verdict in verdicts(dice, truths)]
        shares.append(sum(told[10:]) / max(1, sum(told)))
        found += sum(told[:10])
    assert np.mean(shares) <= 0.05
    assert found >= 0.85 * 300


def test_fewer_than_three_launches_are_never_certain() -> None:
    dice = np.random.default_rng(5)
    assert set(verdicts(dice, [0.5, 2.0], launches=2)) == {Verdict.PERHAPS_WORSE, Verdict.PERHAPS_BETTER}


@pytest.mark.parametrize("freedom", [1.0, 2.0, 3.7, 10.0, 200.0])
def test_p_is_one_in_twenty_at_the_ends_of_the_interval(freedom: float) -> None:
    assert p_of_t(t_quantile(freedom), freedom) == pytest.approx(0.05, rel=1e-4)
    assert p_of_t(0.0, freedom) == pytest.approx(1.0)


def test_p_against_a_table_of_students_t() -> None:
    for freedom, errors, p in ((1, 63.657, 0.01), (4, 2.776, 0.05), (4, 8.610, 0.001), (10, 4.587, 0.001)):
        assert p_of_t(errors, freedom) == pytest.approx(p, rel=2e-3)


def test_sides_without_any_noise_are_equal_or_different() -> None:
    assert p_of_ratio([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]) == 1.0
    assert p_of_ratio([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == 0.0
