"""Bytes over a real SSH link with the sweep on screen, and what one question costs the host. Prints JSON.

The CT200 plan on a simulated host with eight GPUs, five times faster than real, so its journal and figures change five
times as often; the agent is reached through a real sshd and a proxy that counts. With a number as argument it listens
for that many seconds.
"""

import asyncio
import json
import os
import pwd
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil

sys.path += [str(Path(__file__).parents[1] / "rigs")]

from cut_proxy import CutProxy
from sshd import Sshd, prepared
from waiting import until

from ddconsole.commands.run import read_sweep
from ddconsole.link.connect import connect
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.planfile.submission import Rehearsal, submission_of
from ddconsole.rehearsal.command import environment, prepare_state, rehearsal_command

LIMIT = 5 * 1024
"""Bytes a second on average, both ways, SSH's own included."""
QUESTION_LIMIT = 0.001
"""Seconds of CPU on the host for one question about the state."""
_SCALE = 5.0
_QUESTIONS = 400
_PLAN = Path(__file__).parents[2] / "plans" / "ct200-ddtree.yaml"


async def measured(sshd: Sshd, folder: Path, seconds: float) -> dict[str, object]:
    """Begin the sweep, look at it as the sweep screen does, and count."""
    prepare_state(folder / "host")
    scaled = environment(folder / "host", _SCALE)
    sweep = read_sweep(str(_PLAN))
    order = submission_of(sweep, "bench", "local", Rehearsal(rehearsal_command(), _SCALE, ()))
    order = replace(order, protocol={**order.protocol, "preflight": False})
    async with CutProxy(sshd.port).listening() as proxy:
        key = (sshd.folder / "host_key.pub").read_text()
        (sshd.folder / "known_hosts").write_text(f"[127.0.0.1]:{proxy.port} {key}")
        client = await connect(
            f"{sshd.user.pw_name}@127.0.0.1:{proxy.port}",
            state_directory=str(folder / "state"),
            environment=scaled,
            ssh=sshd.settings(),
        )
        try:
            await client.submit(order)
            feed = LiveRunFeed(client, "bench")
            feed.start()
            # The first picture is not what watching costs.
            await until(lambda: feed.state.running_cell() is not None and feed.host_state is not None, 240)
            await asyncio.sleep(2)
            watching, questions = await _watch(feed, proxy, seconds), await _questions(client)
            await feed.command("stop-run")
            await until(lambda: feed.state.phase.value == "ended" and feed.state.live_launch() is None, 60)
            await feed.close()
            await client.quit()
        finally:
            await client.close()
    return {"watching": watching, "questions": questions}


async def _watch(feed: LiveRunFeed, proxy: CutProxy, seconds: float) -> dict[str, object]:
    before, seq, changed = list(proxy.counted), feed.state.seq, [0]
    end = feed.subscribe(lambda names: changed.__setitem__(0, changed[0] + bool(names - {"link"})))
    await asyncio.sleep(seconds)
    end()
    sent, came = (now - then for now, then in zip(proxy.counted, before, strict=True))
    return {
        "seconds": seconds,
        "to_host_bytes_per_s": round(sent / seconds),
        "from_host_bytes_per_s": round(came / seconds),
        "journal_entries": feed.state.seq - seq,
        "changes_on_screen": changed[0],
        "limit_bytes_per_s": LIMIT,
        "within": (sent + came) / seconds < LIMIT,
    }


async def _questions(client: HttpAgentClient) -> dict[str, object]:
    """CPU of the agent for `hello` and `runs`, less what it takes without questions in the same time."""
    agent = psutil.Process((await client.hello()).pid)
    loop = asyncio.get_running_loop()
    results: dict[str, object] = {}
    for name, ask in (("hello", client.hello), ("runs", client.runs)):
        began, used = loop.time(), _cpu(agent)
        for _ in range(_QUESTIONS):
            await ask()
        took, spent = loop.time() - began, _cpu(agent) - used
        used = _cpu(agent)
        await asyncio.sleep(took)
        each = max(0.0, spent - (_cpu(agent) - used)) / _QUESTIONS
        results[name] = {"host_cpu_ms": round(each * 1000, 3), "within": each < QUESTION_LIMIT}
    return results


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> int:
    """Measure and print; status 1 above a limit."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with prepared() as sshd, tempfile.TemporaryDirectory(prefix="ddl-", dir="/tmp") as name:
        # The simulated engine is this checkout's: it runs as who may read it.
        sshd.user = pwd.getpwuid(os.geteuid())
        sshd.start()
        try:
            result = asyncio.run(measured(sshd, Path(name), seconds))
        finally:
            shutil.rmtree(Path(name) / "state", ignore_errors=True)
    print(json.dumps({"link": result}))
    return 0 if '"within": false' not in json.dumps(result) else 1


if __name__ == "__main__":
    sys.exit(main())
