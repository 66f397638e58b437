"""How often 95 % intervals hold the truth: ours, a percentile bootstrap of three levels, and one over requests.

Prints a table of 2,000 synthetic experiments each, for a cell's rate and for its speed-up.
"""

import sys

from tests.report.synthetic_launches import (
    PROMPTS,
    Noise,
    bootstrap_rate_bounds,
    bootstrap_speed_up_bounds,
    experiments,
    naive_rate_bounds,
    naive_speed_up_bounds,
    rate_bounds,
    share_that_holds,
    speed_up_bounds,
)

SHAPES = ((3, 3, 3), (5, 5, 5), (3, 3, 3, 3, 3), (5, 5, 5, 5, 5), (5, 3, 4), (1, 5, 3), (5, 1, 3, 2, 4))
NOISES = (
    Noise("launches 3 %, requests 2 %", launch=0.03, repetition=0.01, request=0.02),
    Noise("launches 1 %, requests 10 %", launch=0.01, repetition=0.01, request=0.10),
    Noise("launches 3 %, heavy tails", launch=0.03, repetition=0.01, request=0.02, heavy=True),
)
COLUMNS = (
    (rate_bounds, speed_up_bounds),
    (bootstrap_rate_bounds, bootstrap_speed_up_bounds),
    (naive_rate_bounds, naive_speed_up_bounds),
)


def main(number: int = 2000) -> None:
    """Simulate and print."""
    print(f"coverage of 95 % intervals in {number} experiments, {PROMPTS} requests a repetition: rate / speed-up")
    print(f"{'noise':30}{'repetitions of each launch':28}{'ours':>16}{'3-level bootstrap':>20}{'over requests':>16}")
    for noise in NOISES:
        for shape in SHAPES[:4] if noise.heavy else SHAPES:
            found = list(experiments(shape, noise, number))
            cells = [
                f"{share_that_holds(found, rate, lambda one: one.rate):.1%} / "
                f"{share_that_holds(found, speed_up, lambda one: one.speed_up):.1%}"
                for rate, speed_up in COLUMNS
            ]
            print(f"{noise.name:30}{shape!s:28}{cells[0]:>16}{cells[1]:>20}{cells[2]:>16}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
