"""A driver that does not come back from a call: the other GPUs are read on, and it is said which one and since when."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.sampler import HostSampler
from ddconsole.probe.watched_sampler import DriverHangs, WatchedSampler

FIXTURES = Path(__file__).parents[1] / "fixtures/nvml"


class StallingNvml(RecordedNvml):
    """The recorded H200 machine; while `stalled`, one call about one GPU does not come back."""

    def __init__(self, call: str, gpu: int | None) -> None:
        super().__init__(json.loads((FIXTURES / "h200x2.json").read_text()))
        self.answers = threading.Event()
        self._call, self._gpu = call, gpu

    def __getattr__(self, call: str) -> Any:
        function = super().__getattr__(call)
        if call != self._call:
            return function

        def stalling(*arguments: Any) -> Any:
            if self._gpu is None or arguments[0] == self._gpu:
                self.answers.wait(30)
            return function(*arguments)

        return stalling


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_files(json.loads((FIXTURES / "h200x2-files.json").read_text()), tmp_path)
    return tmp_path


@pytest.fixture
def stalling(root: Path) -> Iterator[tuple[StallingNvml, WatchedSampler]]:
    nvml = StallingNvml("nvmlDeviceGetPowerUsage", 1)
    yield nvml, WatchedSampler(lambda left_out: HostSampler(nvml, time.time, root, left_out=left_out), deadline=0.2)
    nvml.answers.set()


def test_one_gpu_that_stalls_is_named_and_the_other_is_read_on(
    stalling: tuple[StallingNvml, WatchedSampler],
) -> None:
    _, watched = stalling

    state = watched.sample()

    assert state.gpu_count.value == 2
    assert state.gpus[0].power.value == pytest.approx(79.863)
    reason = state.gpus[1].power.unavailable
    assert reason is not None
    since = time.strftime("%H:%M:")
    assert reason.startswith(f"no answer to nvmlDeviceGetPowerUsage since {since}")
    again = watched.sample()
    assert again.gpus[1].power.unavailable == reason, "since then, not since the last try"


def test_it_is_asked_again_when_the_call_comes_back(stalling: tuple[StallingNvml, WatchedSampler]) -> None:
    nvml, watched = stalling
    assert not watched.sample().gpus[1].power.known

    nvml.answers.set()

    deadline = time.monotonic() + 10
    while not watched.sample().gpus[1].power.known and time.monotonic() < deadline:
        time.sleep(0.05)
    assert watched.sample().gpus[1].power.known


def test_a_stalled_thread_says_nothing_when_it_comes_back(stalling: tuple[StallingNvml, WatchedSampler]) -> None:
    """It must not go on with calls about the other GPUs beside the thread that took over."""
    nvml, watched = stalling
    watched.sample()
    asked = dict(nvml.asked)

    nvml.answers.set()
    for worker in threading.enumerate():
        if worker.daemon and worker.name.startswith("Thread-"):
            worker.join(5)

    assert nvml.asked == asked | {("nvmlDeviceGetPowerUsage", 1): asked.get(("nvmlDeviceGetPowerUsage", 1), 0) + 1}


def test_a_driver_that_stalls_as_a_whole_is_given_up(root: Path) -> None:
    nvml = StallingNvml("nvmlSystemGetDriverVersion", None)
    watched = WatchedSampler(lambda left_out: HostSampler(nvml, time.time, root, left_out=left_out), deadline=0.2)

    with pytest.raises(DriverHangs, match=r"no answer to nvmlSystemGetDriverVersion since \d\d:"):
        watched.sample()

    nvml.answers.set()


def test_what_goes_wrong_in_the_thread_is_raised_where_it_is_waited_for(root: Path) -> None:
    class Broken(RecordedNvml):
        def nvmlInit(self) -> None:  # noqa: N802  # pynvml's name
            raise ZeroDivisionError

    nvml = Broken({"devices": [], "pairs": []})
    watched = WatchedSampler(lambda left_out: HostSampler(nvml, time.time, root, left_out=left_out))

    with pytest.raises(ZeroDivisionError):
        watched.sample()
