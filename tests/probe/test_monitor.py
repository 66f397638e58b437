"""The probe's process: samples, a hang in the driver, and its end."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.probe.monitor import HostMonitor, ProbeProblem, one_sample, probe_command, probe_environment
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler


@pytest.fixture
def sample_line(tmp_path: Path) -> str:
    recording = {"nvmlInit": {"error": "", "code": 12}, "devices": [], "pairs": []}
    return json.dumps(host_state_to_json(HostSampler(RecordedNvml(recording), lambda: 1000.0, tmp_path).sample()))


def fake_probe(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A process that behaves like a probe in trouble."""
    script = tmp_path / "fake_probe.py"
    script.write_text(f"import sys, time, os\ndef say(text): print(text, flush=True)\n{body}\n")
    return (sys.executable, str(script))


async def first_silence(monitor: HostMonitor) -> None:
    async with asyncio.timeout(20):
        async for sample in monitor.samples():
            if sample is None:
                return


async def test_real_probe_gives_samples_until_it_is_stopped() -> None:
    monitor = HostMonitor(interval=0.05, disks=("/",))
    async with monitor, asyncio.timeout(20):
        samples = []
        async for sample in monitor.samples():
            samples.append(sample)
            if len(samples) == 3:
                break
        children = psutil.Process().children()
        assert any("ddconsole.probe" in child.cmdline() for child in children)
    assert samples[0] is not None
    assert samples[2] is not None
    assert samples[2].at > samples[0].at
    assert samples[2].disks[0].path == "/"
    assert monitor.problem is None
    assert not any("ddconsole.probe" in child.cmdline() for child in psutil.Process().children())


async def test_real_probe_is_quiet_when_told() -> None:
    monitor = HostMonitor(interval=0.05)
    async with monitor, asyncio.timeout(20):
        seen = []
        monitor.be_quiet(quiet=True)
        async for sample in monitor.samples():
            assert sample is not None
            seen.append(sample.quiet)
            if sample.quiet:
                monitor.be_quiet(quiet=False)
            if len(seen) > 1 and seen[-2:] == [True, False]:
                break
    assert True in seen


async def test_own_cost_of_the_probe_is_told() -> None:
    monitor = HostMonitor(interval=0.05)
    async with monitor, asyncio.timeout(20):
        async for sample in monitor.samples():
            if sample is not None and sample.probe_cpu.known:
                break
    assert sample is not None
    assert 0 <= sample.probe_cpu.require() <= 100 * (sample.cpu_count.value or 1)
    assert sample.probe_seconds.require() > 0


async def test_hang_is_said_with_its_time_and_a_sample_ends_it(tmp_path: Path, sample_line: str) -> None:
    go_on = tmp_path / "go-on"
    command = fake_probe(
        tmp_path,
        f"say({sample_line!r})\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.02)\n"
        f"say({sample_line!r})\n"
        "sys.stdin.read()",
    )
    async with HostMonitor(deadline=0.2, restart_after=600, command=command) as monitor:
        await first_silence(monitor)
        assert monitor.silent_since == 1000.0, "the time of the last sample"
        assert (monitor.problem or "").startswith("no answer since ")
        assert monitor.latest is not None
        assert monitor.starts == 1, "it is not restarted before its time"

        go_on.touch()
        async with asyncio.timeout(20):
            async for sample in monitor.samples():
                if sample is not None:
                    break
        assert monitor.problem is None


async def test_probe_that_hangs_from_the_start_is_silent_since_the_start(tmp_path: Path) -> None:
    async with HostMonitor(deadline=0.1, restart_after=600, command=fake_probe(tmp_path, "time.sleep(600)")) as monitor:
        await first_silence(monitor)
        assert monitor.latest is None
        assert monitor.silent_since is not None


async def test_hanging_probe_is_replaced_after_its_time(tmp_path: Path, sample_line: str) -> None:
    been = tmp_path / "been"
    command = fake_probe(
        tmp_path,
        f"if not os.path.exists({str(been)!r}):\n"
        f"    open({str(been)!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        f"say({sample_line!r})\n"
        "sys.stdin.read()",
    )
    async with HostMonitor(deadline=0.1, restart_after=0.3, command=command) as monitor, asyncio.timeout(20):
        async for sample in monitor.samples():
            if sample is not None:
                break
        assert monitor.starts == 2
        assert monitor.problem is None
        assert len(psutil.Process().children()) == 1, "the hanging one is gone"


async def test_dead_probe_says_its_last_words(tmp_path: Path) -> None:
    command = fake_probe(tmp_path, "sys.stderr.write('libnvidia-ml.so.1 is broken\\n'); sys.exit(3)")
    async with HostMonitor(deadline=5, restart_after=600, command=command) as monitor:
        await first_silence(monitor)
        assert "no answer since" in (monitor.problem or "")
        assert (monitor.problem or "").endswith("libnvidia-ml.so.1 is broken")


@pytest.mark.parametrize("body", ["say('{}')", "say('no json')", "say('x' * (5 * 1024 * 1024))"])
async def test_what_is_no_sample_is_silence(tmp_path: Path, body: str) -> None:
    async with HostMonitor(deadline=5, restart_after=600, command=fake_probe(tmp_path, body)) as monitor:
        await first_silence(monitor)
        assert monitor.latest is None


async def test_command_that_is_not_there_is_silence() -> None:
    async with HostMonitor(deadline=5, restart_after=600, command=("/nowhere/python",)) as monitor:
        await first_silence(monitor)
        assert "could not be started" in (monitor.problem or "")


async def test_one_sample_of_this_machine() -> None:
    state = await one_sample()

    assert state.hostname.known
    assert state.cpu_percent.known
    assert not state.simulated


async def test_one_sample_has_a_deadline(tmp_path: Path) -> None:
    with pytest.raises(ProbeProblem, match=r"no sample within 0\.2 s"):
        await one_sample(deadline=0.2, command=fake_probe(tmp_path, "time.sleep(600)"))
    with pytest.raises(ProbeProblem, match="ended with 3: it broke"):
        await one_sample(
            command=fake_probe(tmp_path, "sys.exit('it broke') if 0 else sys.stderr.write('it broke'); sys.exit(3)")
        )


def test_probe_ends_when_its_input_closes() -> None:
    process = subprocess.Popen(
        probe_command("--interval", "600"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=probe_environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"at"')

    process.stdin.close()

    assert process.wait(timeout=20) == 0
    process.stdout.close()


def test_probe_dies_with_its_parent() -> None:
    """Its standard input stays open: the test holds the other end."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'ddconsole.probe', '--interval', '600'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=probe_environment()
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    probe = psutil.Process(int(parent.stdout.readline()))

    parent.kill()
    parent.wait(timeout=20)

    gone, _ = psutil.wait_procs([probe], timeout=20)
    assert gone or probe.status() == psutil.STATUS_ZOMBIE
    parent.stdin.close()
    parent.stdout.close()


def test_probe_needs_only_what_the_host_has() -> None:
    script = (
        "import sys, ddconsole.probe.__main__, ddconsole.probe.monitor, ddconsole.probe.recording\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))\n"
        "print(sorted(name for name in sys.modules if name.startswith('ddconsole.') and name.count('.') == 1))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=probe_environment(), check=True
    )
    packages, own = process.stdout.splitlines()

    assert set(json.loads(packages.replace("'", '"'))) <= {
        "__main__",
        "ddconsole",
        "psutil",
        "pynvml",
        "_distutils_hack",
    }
    assert own == "['ddconsole.core', 'ddconsole.probe']"


def test_probe_prints_the_machine_for_people() -> None:
    process = subprocess.run(
        probe_command("--text", "--width", "60"), capture_output=True, text=True, env=probe_environment(), check=True
    )

    assert "NUMA" in process.stdout
    assert max(len(line) for line in process.stdout.splitlines()) <= 60
