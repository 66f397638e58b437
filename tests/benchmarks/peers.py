"""Load generators side by side on a server whose answers are known: `make bench-peers`.

Each tool gets the same loads from the same server, one after the other. The errors are the tool's figures less the
server's own: TTFT from the arrival of the request to the writing of the first text, the time of a token by the tool's
own formula, and (`true pace`) from the first text on without that text's tokens. CPU is that of all processes of the
tool: for a thousand chunks by the difference of a long and a short run, the rest is what it costs to start.

`python -m tests.benchmarks.peers NAME ...` runs the tools whose names begin so, and keeps the others' last results.
What is not installed is named. Results: `.peers/results.json`.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.peer_tools import PEERS, ROOT, TOOLS, Load, Told, Tool

LOADS = (
    Load("1 stream, fixed gaps", 1, 4, 150, 0.005),
    Load("8 streams, random gaps, 1-8 tokens", 8, 32, 400, 0.01, random_gaps=True, most_tokens=8),
    Load("64 streams, random gaps, 1-8 tokens", 64, 128, 200, 0.04, random_gaps=True, most_tokens=8),
    Load("256 streams, random gaps, 1-8 tokens", 256, 256, 120, 0.15, random_gaps=True, most_tokens=8),
    Load("512 streams, random gaps, 1-8 tokens", 512, 512, 120, 0.3, random_gaps=True, most_tokens=8),
)
SHORT = Load("CPU, short", 32, 32, 50, 0.015)
LONG = Load("CPU, long", 32, 96, 450, 0.015)
CLOSING = Load("connections closed", 8, 400, 8, 0.001, first=0.005, close_after=0.0005)
_RESULTS = PEERS / "results.json"
_PATIENCE = 180


@dataclass(frozen=True)
class Truth:
    """What the server did. Means over the requests, seconds."""

    ttft: float
    tpot: float
    """(last - first) / (n - 1)."""
    pace: float
    """(last - first) / (n - k), k the tokens of the first text."""
    rate: float
    chunks: int


@dataclass(frozen=True)
class Run:
    """One tool on one load."""

    told: Told | None
    truth: Truth | None
    cpu: float
    """Seconds, of all its processes."""
    wall: float
    problem: str = ""


class Server:
    """The paced server, and what it is asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def set_pace(self, load: Load) -> None:
        self._ask("/mode", load.pace)

    def truth(self, requests: int) -> Truth | None:
        """Of the last so many requests that got all of their answer: a tool's own warm-up comes before them."""
        whole = [one for one in self._ask("/truth") if one["whole"]][-requests:]
        return truth_of(whole) if whole else None

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers)) as answer:
            return json.loads(answer.read())


def truth_of(answers: list[Any]) -> Truth:
    firsts, tpots, paces, tokens = [], [], [], 0
    for one in answers:
        (first, with_first), (last, _) = one["writes"][0], one["writes"][-1]
        total = sum(count for _, count in one["writes"])
        firsts.append(first - one["arrived"])
        tokens += total
        if last > first:
            tpots.append((last - first) / (total - 1))
            paces.append((last - first) / (total - with_first))
    wall = max(one["writes"][-1][0] for one in answers) - min(one["arrived"] for one in answers)
    chunks = sum(len(one["writes"]) for one in answers)
    return Truth(statistics.fmean(firsts), statistics.fmean(tpots), statistics.fmean(paces), tokens / wall, chunks)


@contextmanager
def paced_server() -> Iterator[Server]:
    program = str(ROOT / "tests" / "rigs" / "paced_server.py")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()))
        finally:
            process.kill()


def run(tool: Tool, load: Load, server: Server) -> Run:
    """Start a tool on a load, and wait for its end."""
    folder = PEERS / "runs" / f"{tool.name} {load.name}".replace(" ", "-").replace(",", "")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server.set_pace(load)
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "0"}
    if tool.offline:
        environment |= {"TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    began = time.monotonic()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            tool.command(server.url, load, folder), stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=ROOT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    status, cpu = _ended(process)
    wall = time.monotonic() - began
    if status != 0:
        return Run(None, None, cpu, wall, f"status {status}, see {folder / 'output'}")
    try:
        told = tool.told(folder, load)
    except (OSError, ValueError, KeyError, StopIteration) as problem:
        return Run(None, None, cpu, wall, f"no result: {problem!r}, see {folder}")
    return Run(told, server.truth(load.requests), cpu, wall)


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Exit status and CPU seconds, its children's included; killed with its session when it takes too long."""
    deadline = time.monotonic() + _PATIENCE
    try:
        return _waited_for(process, deadline)
    finally:
        with suppress(ProcessLookupError):  # whatever it left, and itself where this comparison is ended
            os.killpg(process.pid, signal.SIGKILL)


def _waited_for(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, float]:
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.05)


def errors(tool: Tool, one: Run) -> dict[str, float | None]:
    """What a tool says less what was: seconds, and of rates and paces the share of the truth."""
    if one.told is None or one.truth is None:
        return {}
    told, truth = one.told, one.truth
    own = truth.pace if tool.counts_first_chunk else truth.tpot
    return {
        "ttft_us": None if told.ttft is None else (told.ttft - truth.ttft) * 1e6,
        "tpot_percent": None if told.tpot is None else (told.tpot / own - 1) * 100,
        "pace_percent": None if told.tpot is None else (told.tpot / truth.pace - 1) * 100,
        "rate_percent": None if told.rate is None else (told.rate / truth.rate - 1) * 100,
    }


def compare(tool: Tool, server: Server) -> dict[str, Any]:
    """All loads of one tool."""
    found: dict[str, Any] = {"loads": {}}
    for load in LOADS:
        one = run(tool, load, server)
        lost = load.requests - (one.told.succeeded if one.told else 0)
        found["loads"][load.name] = {**errors(tool, one), "lost": lost, "problem": one.problem}
        _say(f"  {load.name}: {found['loads'][load.name]}")
    short, long = run(tool, SHORT, server), run(tool, LONG, server)
    if short.truth and long.truth:
        cost = (long.cpu - short.cpu) / (long.truth.chunks - short.truth.chunks)
        found |= {"cpu_ms_per_thousand": cost * 1e6, "cpu_to_start": short.cpu - cost * short.truth.chunks}
    closing = run(tool, CLOSING, server)
    found["lost_to_closing"] = CLOSING.requests - closing.told.succeeded if closing.told else closing.problem
    return found


def table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a tool and load, then what each tool costs."""
    lines = ["| load | tool | TTFT error, µs | TPOT error, own formula | beside the true pace | rate error | lost |"]
    lines.append("|---|---|---|---|---|---|---|")
    for load in LOADS:
        for name, found in results.items():
            one = found["loads"].get(load.name, {})
            cells = [_shown(one.get("ttft_us"), "+.0f"), *(_shown(one.get(f"{kind}_percent"), "+.2f", " %") for kind in
                     ("tpot", "pace", "rate")), str(one.get("lost", ""))]  # fmt: skip
            lines.append(f"| {load.name} | {name} | {' | '.join(cells)} |")
    lines += ["", "| tool | CPU for 1,000 chunks, ms | CPU to start, s | requests lost to closed connections |"]
    lines.append("|---|---|---|---|")
    for name, found in results.items():
        cost, start = _shown(found.get("cpu_ms_per_thousand"), ".1f"), _shown(found.get("cpu_to_start"), ".2f")
        lines.append(f"| {name} | {cost} | {start} | {found.get('lost_to_closing')} of {CLOSING.requests} |")
    return "\n".join(lines)


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the tool that runs is ended too
    wanted = sys.argv[1:]
    results: dict[str, Any] = json.loads(_RESULTS.read_text()) if wanted and _RESULTS.exists() else {}
    with paced_server() as server:
        for tool in TOOLS:
            if wanted and not any(tool.name.startswith(name) for name in wanted):
                continue
            if not tool.installed:
                _say(f"{tool.name}: not installed ({tool.python} is not there)")
                continue
            _say(f"{tool.name}:")
            results[tool.name] = compare(tool, server)
            PEERS.mkdir(exist_ok=True)
            _RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    _say("\n" + table(results))


if __name__ == "__main__":
    main()
