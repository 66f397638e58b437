"""What pruning and adaptive repetition save, and whether the conclusions stay: from the journals of two sweeps.

`python -m tests.benchmarks.bench_saving`: llama.cpp with the tiny model of the fixtures, its draft and n-grams, once
with a fixed number of launches and once with `prune` and `repeat`. With `--rehearsed` the CT200 plan, shortened, on
the simulated host. Prints wall time, GPU hours (server hours where there is no GPU), the best method of each
tensor-parallel size and workload, and how far the foretold time was off.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.row_text import cell_figures
from ddconsole.core.run_state import RunState
from ddconsole.report.launch_interval import interval_of
from tests.benchmarks.simulated_sweep import Foretold, foretold

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
PLANS = Path(__file__).parents[2] / "plans"
FIXED = "{{launches: {launches}, warmup: 1, ready_timeout: 20m}}"
ADAPTIVE = (
    "{{warmup: 1, ready_timeout: 20m, order: information, prune: {{below: 0.8}}, "
    "repeat: {{until: {until}, most: {launches}}}}}"
)
REAL = """
name: saving
host: local
model: {{path: {models}/tinypy.gguf, draft: {models}/tinypy-draft.gguf}}
engine:
  kind: llamacpp
  command: [{python}, -m, ddconsole.engines.xllamacpp_server]
  args: {{threads: 1}}
methods:
  ar: {{}}
  draft:
    for: {{tokens: [2, 4, 8, 16]}}
    name: "draft-{{tokens}}"
    speculative: {{kind: draft, draft_tokens: "{{tokens}}"}}
  ngram: {{speculative: {{kind: ngram, draft_tokens: 8}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [128, 256], repetitions: 2}}
  concurrency: {{kind: closed-loop, prompts: five, max_tokens: 128, concurrency: [2], requests: 6}}
placement: none
protocol: {protocol}
"""


@dataclass(frozen=True)
class Came:
    """What a sweep came to."""

    hours: float
    gpu_hours: float
    launches: int
    attempts: int
    pruned: int
    best: dict[str, tuple[str, tuple[str, ...]]]
    """By tensor-parallel size and workload point: the best method, and all whose interval holds the best one's."""
    told: tuple[Foretold, ...]


def came_of(entries: list[ev.Entry]) -> Came:
    """Read a finished run's journal."""
    state = fold(entries)
    seconds = dict.fromkeys(state.deployments, 0.0)
    for launch in state.launches.values():
        ended = launch.state.at if isinstance(launch.state, st.Gone | st.LaunchFailed) else launch.planned
        seconds[launch.deployment] += ended - launch.planned
    gpus = {one.id: max(1, len(one.placement.gpus)) for one in state.deployments.values()}
    began = min(launch.planned for launch in state.launches.values())
    ended = max(entry.at for entry in entries if isinstance(entry.event, ev.LaunchGone))
    rows = state.cells.values()
    return Came(
        hours=(ended - began) / 3600,
        gpu_hours=sum(seconds[name] * gpus[name] for name in seconds) / 3600,
        launches=len(state.launches),
        attempts=sum(len(row.attempts) for row in rows),
        pruned=sum(isinstance(row.state, st.Pruned) for row in rows),
        best=_best(state),
        told=tuple(foretold(entries)),
    )


def _best(state: RunState) -> dict[str, tuple[str, tuple[str, ...]]]:
    found: dict[str, list[tuple[float, float, str]]] = {}
    for row in state.cells.values():
        figures = cell_figures(row)
        if figures is None or figures.output_rate is None:
            continue
        deployment = state.deployments[row.cell.deployment]
        rates = [float(one.figures["output_rate"]) for one in row.compared_attempts()]
        high = interval_of(rates)[1] if len(rates) > 2 else figures.output_rate
        place = f"TP{deployment.tensor_parallel} {row.cell.point.label}"
        found.setdefault(place, []).append((figures.output_rate, high, deployment.method))
    best = {}
    for place, several in found.items():
        rate, _, method = max(several)
        best[place] = (method, tuple(sorted(name for _, high, name in several if high >= rate)))
    return best


def _sweep(folder: Path, plan: str, name: str, *, rehearsed: bool, scale: float) -> list[ev.Entry]:
    """Run it to its end, without a console."""
    path = folder / f"{name}.yaml"
    path.write_text(plan)
    environment = {**os.environ, "DDCONSOLE_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    verb = ["rehearse", str(path), "--scale", str(scale)] if rehearsed else ["run", str(path)]
    command = [sys.executable, "-m", "ddconsole", *verb, "--headless", "--force", "--name", name]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    entries, _ = read_lines((folder / "runs" / name / "journal.jsonl").read_bytes())
    return list(entries)


def _rehearsed_plan(protocol: str) -> str:
    """CT200's, with half its workloads, without what belongs to the real host."""
    text = (PLANS / "ct200-ddtree.yaml").read_text()
    text = re.sub(r"^protocol: .*$", f"protocol: {protocol}", text, flags=re.MULTILINE)
    text = re.sub(r"^displace:\n.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^notify: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^  (calculator|pipeline): .*\n", "", text, flags=re.MULTILINE)
    text = text.replace("max_tokens: [256, 1024, 2048], repetitions: 5", "max_tokens: [256, 1024], repetitions: 1")
    return text.replace("concurrency: [1, 2, 4, 8]", "concurrency: [1, 4]")


def _print(fixed: Came, adaptive: Came, gpu: str) -> None:
    print(f"{'':24}{'fixed':>12}{'prune, repeat':>16}{'saved':>9}")
    for name, one, other in (
        ("wall time, min", fixed.hours * 60, adaptive.hours * 60),
        (f"{gpu} hours", fixed.gpu_hours, adaptive.gpu_hours),
        ("launches", fixed.launches, adaptive.launches),
        ("measured cells", fixed.attempts, adaptive.attempts),
    ):
        print(f"{name:24}{one:>12.2f}{other:>16.2f}{1 - other / one:>9.0%}")
    print(f"{'pruned cells':24}{fixed.pruned:>12}{adaptive.pruned:>16}")
    print(f"\n{'best method':34}{'fixed':>14}{'prune, repeat':>16}")
    for place, (method, also) in fixed.best.items():
        found = adaptive.best.get(place, ("-", ()))[0]
        same = "same" if method == found else "as good" if found in also else "OTHER"
        print(f"{place:34}{method:>14}{found:>16}  {same}")
    print("\nforetold time that is left, error as a share of it")
    for name, came in (("fixed", fixed), ("prune, repeat", adaptive)):
        rest = [one for one in came.told if one.cells >= 10]
        marks = [_error_at(rest, share) for share in (0.75, 0.5, 0.25)]
        counted = [one for one in rest if one.left > 0.1 * one.whole]
        worst = max(counted, key=lambda one: abs(one.error))
        within = sum(abs(one.error) <= 0.15 for one in counted) / len(counted)
        print(
            f"{name:16}at the tenth cell {rest[0].error:+.0%}, with 3/4, 1/2, 1/4 left {', '.join(marks)}; "
            f"until 1/10 is left: worst {worst.error:+.0%} (cell {worst.cells}), within 15 % {within:.0%} of the time"
        )


def _error_at(told: list[Foretold], share: float) -> str:
    """When this share of the run was left."""
    return next((f"{one.error:+.0%}" for one in told if one.left <= share * one.whole), "-")


def main() -> None:
    """Run both sweeps and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rehearsed", action="store_true")
    options.add_argument("--launches", type=int, default=5)
    options.add_argument("--until", type=float, default=0.03)
    options.add_argument("--scale", type=float, default=120.0)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="dd-") as temporary:
        folder = Path(temporary)
        journals = []
        for name, protocol in (("fixed", FIXED), ("adaptive", ADAPTIVE)):
            words = protocol.format(launches=asked.launches, until=asked.until)
            real = REAL.format(models=MODELS, python=sys.executable, protocol=words)
            plan = _rehearsed_plan(words) if asked.rehearsed else real
            journals.append(_sweep(folder, plan, name, rehearsed=asked.rehearsed, scale=asked.scale))
        _print(came_of(journals[0]), came_of(journals[1]), "GPU" if asked.rehearsed else "server")


if __name__ == "__main__":
    main()
