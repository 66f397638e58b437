"""Our own load generator as a command, for the comparison: its process, started, given one task, and read to its end.

`python -m tests.benchmarks.own_load URL FOLDER [count]`: FOLDER has `load.json`, and gets `told.json`.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from ddconsole.core.figures import summarise, time_per_output_token, time_to_first_token
from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.codec import message_of_line, order_line
from ddconsole.load.task import LoadReport, LoadTask, Prompt

PROMPT = Prompt("x", " ".join(f"w{number}" for number in range(32)))


def task_of(url: str, load: dict[str, int], *, count: bool) -> LoadTask:
    point = WorkloadPoint(
        "peers", "closed-loop", "x", load["streams"], load["tokens"], 1, load["requests"], Sampling(ignore_eos=True)
    )
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}} if count else {}
    return LoadTask("c001", 1, url, "paced", point, (PROMPT,), None, options)


def measured(task: LoadTask) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    command = [sys.executable, "-m", "ddconsole.load"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order_line(task))
        process.stdin.flush()
        for line in process.stdout:
            message = message_of_line(line)
            if isinstance(message, RequestRecord):
                records.append(message)
            elif isinstance(message, LoadReport):
                break
        process.stdin.close()
    return records


def main() -> None:
    url, folder = sys.argv[1], Path(sys.argv[2])
    load = json.loads((folder / "load.json").read_text())
    records = measured(task_of(url, load, count="count" in sys.argv[3:]))
    figures = summarise(records)
    firsts = [value for one in records if (value := time_to_first_token(one)) is not None]
    paces = [value for one in records if (value := time_per_output_token(one)) is not None]
    told = {
        "succeeded": figures.succeeded,
        "ttft": statistics.fmean(firsts),
        "tpot": statistics.fmean(paces),
        "rate": figures.server_rate,
    }
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
