"""Samples that go on when the driver does not come back from a call about one GPU.

The calls are made in a thread of their own. Where one takes longer than the deadline, the thread is left with it, and
another one goes on with the GPUs that are left. When the call comes back, its GPU is asked again.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ddconsole.core.host_state import HostState
from ddconsole.probe.nvml_calls import Abandoned, CurrentCall
from ddconsole.probe.sampler import HostSampler

MakeSampler = Callable[[Mapping[int, str]], HostSampler]
"""Makes a sampler that leaves out the GPUs of the mapping, for the reasons in it."""


class DriverHangs(Exception):
    """A call about the driver as a whole does not come back; the text names it."""


@dataclass
class _Stuck:
    sampler: HostSampler
    worker: threading.Thread
    reason: str


class WatchedSampler:
    """Takes samples with a deadline for each call.

    Args:
        make: makes samplers.
        deadline: real seconds for one call; it is noticed after twice as many at most. Without persistence mode the
            driver takes up to three for the first call.
    """

    def __init__(self, make: MakeSampler, deadline: float = 4.0) -> None:
        self._make = make
        self._deadline = deadline
        self._stuck: dict[int, _Stuck] = {}
        self._sampler = make({})
        self._left_out: Mapping[int, str] = {}

    def sample(self, *, quiet: bool = False) -> HostState:
        """The machine now, without the GPUs whose calls do not come back.

        Raises:
            DriverHangs: a call that concerns no single GPU does not come back.
        """
        self._take_back()
        while True:
            state = self._one_try(quiet=quiet)
            if state is not None:
                return state

    def _take_back(self) -> None:
        """GPUs whose calls have come back are asked again; the answers of a new sampler are fresh."""
        self._stuck = {gpu: one for gpu, one in self._stuck.items() if one.worker.is_alive()}
        self._begin_anew()

    def _begin_anew(self) -> None:
        left_out = {gpu: one.reason for gpu, one in self._stuck.items()}
        if left_out != self._left_out:
            self._left_out = left_out
            self._sampler = self._make(left_out)

    def _one_try(self, *, quiet: bool) -> HostState | None:
        """A sample; None where a call did not come back and its GPU was set aside."""
        sampler = self._sampler
        answers: queue.SimpleQueue[HostState | BaseException] = queue.SimpleQueue()
        worker = threading.Thread(target=_sample_into, args=(sampler, answers, quiet), daemon=True)
        worker.start()
        seen: CurrentCall | None = None
        while True:
            try:
                answer = answers.get(timeout=self._deadline)
            except queue.Empty:
                call = sampler.gpus.calls.current
                if call is None or call is not seen:
                    seen = call
                    continue
                self._set_aside(call, sampler, worker)
                return None
            if isinstance(answer, BaseException):
                raise answer
            return answer

    def _set_aside(self, call: CurrentCall, sampler: HostSampler, worker: threading.Thread) -> None:
        sampler.gpus.calls.abandoned = True
        since = datetime.fromtimestamp(call.since, UTC).astimezone().strftime("%H:%M:%S")
        reason = f"no answer to {call.name} since {since}: the driver hangs on this GPU"
        if call.gpu is None:
            raise DriverHangs(f"no answer to {call.name} since {since}: the driver hangs")
        self._stuck[call.gpu] = _Stuck(sampler, worker, reason)
        self._begin_anew()


def _sample_into(sampler: HostSampler, answers: "queue.SimpleQueue[HostState | BaseException]", quiet: bool) -> None:
    try:
        answers.put(sampler.sample(quiet=quiet))
    except Abandoned:
        return
    except BaseException as problem:  # noqa: BLE001  # it is raised again in the thread that waits
        answers.put(problem)
