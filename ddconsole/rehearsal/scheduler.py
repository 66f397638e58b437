"""The simulated scheduler and detokenizer processes: they load, hold GPU memory, and die as SGLang's do."""

import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ddconsole.core.clock import Clock
from ddconsole.rehearsal import failures
from ddconsole.rehearsal.arguments import ServerArguments
from ddconsole.rehearsal.faults import FaultName, FaultRule
from ddconsole.rehearsal.log import Log
from ddconsole.rehearsal.memory import CONTEXT, GIB, MemoryPlan, plan_memory
from ddconsole.rehearsal.processes import retitle, start_ticks, wait_for_word
from ddconsole.rehearsal.state import RELEASE_SECONDS, Holder, gpu_use, write_holder
from ddconsole.rehearsal.timing import real_wait

BUSY, IDLE, DIE, RANK_LOST = b"B", b"I", b"K", b"X"
"""What the main process says to a scheduler, one byte each."""

BEGIN_SECONDS = 18.0
"""From the server's start to the scheduler's first line: silent imports."""
WEIGHT_SECONDS = 15.0
"""52 GiB out of tmpfs on one rank."""
SHARDS = 15
BUSY_PERCENT = 97


@dataclass(frozen=True, slots=True)
class SchedulerTask:
    """What one rank is started with."""

    arguments: ServerArguments
    rank: int
    fault: FaultRule | None
    clock: Clock
    started: float
    """When the server was started, by the clock's monotonic seconds."""
    folder: Path


class SchedulerProcess:
    """One rank, in its own process."""

    def __init__(self, task: SchedulerTask, link: socket.socket) -> None:
        self._task = task
        self._clock = task.clock
        self._link = link
        self._options = task.arguments.options
        ranks = task.arguments.tensor_parallel
        self._log = Log(task.clock, f" TP{task.rank}" if ranks > 1 else "")
        self._at = task.started + BEGIN_SECONDS + 0.12 * task.rank
        self._gpu = task.arguments.gpus[task.rank] if task.rank < len(task.arguments.gpus) else None
        self._fault = task.fault.fault if task.fault and task.rank == 0 else None
        self._held = 0.0
        self._captured = 0.0

    def run(self) -> None:
        """Load, report, then hold the memory until told otherwise."""
        rank = f"_TP{self._task.rank}" if self._task.arguments.tensor_parallel > 1 else ""
        _become(f"sglang::scheduler{rank}", "scheduler.py")
        gpu = self._begin()
        plan = self._load_weights(gpu)
        self._allocate(gpu, plan)
        self._capture(gpu, plan)
        self._link.send(json.dumps({"kv_tokens": plan.kv_tokens, "total": plan.total, "kv": plan.kv}).encode())
        self._serve(gpu)

    def _begin(self) -> int:
        ranks = self._task.arguments.tensor_parallel
        self._pass(0.0)
        self._log.line("Init torch distributed begin.")
        if self._fault is FaultName.DRIVER_FAULT:
            self._pass(0.4)
            self._fail(failures.driver_fault())
        if self._gpu is None:
            self._pass(0.2)
            self._fail(failures.too_few_gpus())
        took = 0.3 if ranks == 1 else 2.7
        self._pass(took)
        if ranks > 1:
            self._log.line("sglang is using nccl==2.28.9")
        self._log.line(f"Init torch distributed ends. elapsed={took:.2f} s, mem usage={CONTEXT:.2f} GB")
        self._hold(self._gpu, CONTEXT)
        self._pass(1.2)
        return self._gpu

    def _load_weights(self, gpu: int) -> MemoryPlan:
        available, others = self._available(gpu)
        plan = plan_memory(self._task.arguments, available)
        self._log.line(f"Load weight begin. avail mem={available - CONTEXT:.2f} GB")
        if self._fault is FaultName.HANG_LOADING:
            self._wait_for_ever()
        if not plan.loads:
            self._pass(0.6)
            free = max(available - CONTEXT, 0.0) % 2
            text = failures.out_of_memory(gpu, 3.25, free, available - free, others)
            self._fail(failures.out_of_memory_loading(text))
        ranks = self._task.arguments.tensor_parallel
        took = WEIGHT_SECONDS / ranks + (0.0 if ranks == 1 else 3.0)
        for shard in range(SHARDS + 1):
            if self._task.rank == 0:
                self._log.shards(shard, SHARDS, took * shard / SHARDS)
            self._hold(gpu, CONTEXT + plan.weights * shard / SHARDS)
            if shard == SHARDS * 2 // 3 and self._fault is FaultName.CRASH_LOADING:
                self._log.raw("\n")
                self._fail(failures.crash_while_loading(self._task.fault.text if self._task.fault else None))
            if shard < SHARDS:
                self._pass(took / SHARDS)
        if self._task.rank == 0:
            self._log.raw("\n")
        left = available - CONTEXT - plan.weights
        self._log.line(
            f"Load weight end. elapsed={took:.2f} s, type=Qwen3_5ForConditionalGeneration, dtype=torch.bfloat16, "
            f"avail mem={left:.2f} GB, mem usage={plan.weights:.2f} GB."
        )
        return plan

    def _allocate(self, gpu: int, plan: MemoryPlan) -> None:
        method = self._task.arguments.method
        if method.speculative:
            self._load_draft(gpu, plan)
        forced = self._fault is FaultName.DOES_NOT_FIT
        if forced or not plan.fits:
            fraction = self._options.mem_fraction_static or 0.85
            self._fail(failures.does_not_fit(fraction, plan.viable_fraction))
        if not plan.states_fit:
            self._fail(failures.no_room_for_states())
        self._pass(0.3)
        copies = (
            f"intermediate_ssm_state_cache size: {0.97 * plan.copies:.2f}GB "
            f"intermediate_conv_window_cache size: {0.03 * plan.copies:.2f}GB "
            if method.speculative
            else ""
        )
        self._log.line(
            f"Mamba Cache is allocated. max_mamba_cache_size: {self._task.arguments.max_running}, "
            f"conv_state size: {0.03 * plan.states:.2f}GB, ssm_state size: {0.97 * plan.states:.2f}GB {copies}"
        )
        half = plan.kv / 2
        self._log.line(
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {plan.kv_tokens}, K size: {half:.2f} GB, "
            f"V size: {half:.2f} GB"
        )
        self._hold(gpu, plan.total - plan.graphs)
        self._log.line(f"Memory pool end. avail mem={self._left(plan):.2f} GB")
        self._log.line("Using hybrid linear attention backend for hybrid GDN models.")

    def _load_draft(self, gpu: int, plan: MemoryPlan) -> None:
        method = self._task.arguments.method
        left = plan.available - CONTEXT - plan.weights
        if method.kind not in {"dflash", "ddtree"}:
            return
        self._log.line(f"Load weight begin. avail mem={left:.2f} GB")
        self._pass(1.4)
        self._hold(gpu, CONTEXT + plan.weights + plan.draft)
        self._log.line(
            f"Load weight end. elapsed=1.40 s, type=DFlashDraftModel, dtype=torch.bfloat16, "
            f"avail mem={left - plan.draft:.2f} GB, mem usage={plan.draft:.2f} GB."
        )
        backend = self._options.speculative_draft_attention_backend or self._options.attention_backend or "flashinfer"
        self._log.line(
            f"Initialized DFLASH draft runner. attention_backend={backend}, model=DFlashDraftModel, "
            f"block_size={self._task.arguments.block_size}, draft_window_size=None, compact_cache=False"
        )
        self._log.line("DFLASH draft runner ready. mask_token=<|MASK|>, mask_token_id=248077")
        if method.kind == "ddtree":
            self._log.line(
                f"Initialized DDTree worker. block_size={self._task.arguments.block_size}, "
                f"tree_budget={method.budget}, max_tree_nodes={method.positions}"
            )

    def _capture(self, gpu: int, plan: MemoryPlan) -> None:
        method = self._task.arguments.method
        if self._options.disable_cuda_graph:
            return
        if not self._options.disable_prefill_cuda_graph:
            self._capture_graph(
                "target prefill CUDA graph", "backend=breakable", [8192, 4096, 2048, 512, 64], plan, 4.0
            )
        sizes = [size for size in (8, 4, 2, 1) if size <= max(self._task.arguments.max_running, 1)]
        what = "verify" if method.speculative else "decode"
        shape = f"backend=full, num_tokens_per_req={method.positions}"
        if self._fault is FaultName.OOM:
            self._log.line(f"Capture target {what} CUDA graph begin. {shape}, avail mem={self._left(plan):.2f} GB")
            self._pass(0.8)
            text = failures.out_of_memory(gpu, 2.5, 0.51, plan.available - 0.51, {})
            self._fail(failures.out_of_memory_capturing(text))
        self._capture_graph(f"target {what} CUDA graph", shape, sizes, plan, 4.0)
        if method.kind in {"dflash", "ddtree"}:
            self._capture_graph("draft verify CUDA graph", shape, sizes, plan, 1.5)
        self._hold(gpu, plan.total)

    def _capture_graph(self, what: str, shape: str, sizes: list[int], plan: MemoryPlan, seconds: float) -> None:
        left = self._left(plan) - self._captured
        self._captured += plan.graphs / 3
        listed = ", ".join(str(size) for size in reversed(sizes))
        axis = "num_tokens" if "prefill" in what else "bs"
        kind = f"num tokens ({axis}" if "prefill" in what else f"batches ({axis}"
        self._log.line(f"Capture {what} begin. {shape}, {axis}=[{listed}], avail mem={left:.2f} GB")
        for number, size in enumerate(sizes):
            if self._task.rank == 0:
                title = f"Capturing {kind}={size} avail_mem={left:.2f} GB)"
                self._log.progress(title, number, len(sizes), seconds * number / len(sizes))
            self._pass(seconds / len(sizes))
        if self._task.rank == 0:
            self._log.progress(
                f"Capturing {kind}={sizes[-1]} avail_mem={left:.2f} GB)", len(sizes), len(sizes), seconds
            )
            self._log.raw("\n")
        self._log.line(
            f"Capture {what} end. elapsed={seconds:.2f} s, mem usage={plan.graphs / 3:.2f} GB, "
            f"avail mem={left - plan.graphs / 3:.2f} GB."
        )

    # --- within ------------------------------------------------------------------------------------------------

    def _available(self, gpu: int) -> tuple[float, dict[int, float]]:
        """GiB that nobody else holds, and who holds the rest."""
        use = gpu_use(self._task.folder, gpu, self._clock.monotonic())
        if use.leaving_bytes:  # of a process that may be dead for long: nobody has looked since
            self._at = max(self._at, self._clock.monotonic())
            self._pass(2 * RELEASE_SECONDS)
            use = gpu_use(self._task.folder, gpu, self._clock.monotonic())
        others = {one.pid: one.bytes / GIB for one in use.holders if one.pid != os.getpid()}
        return 94.97 - sum(others.values()) - use.leaving_bytes / GIB, others

    def _left(self, plan: MemoryPlan) -> float:
        return plan.available - plan.total + plan.graphs

    def _hold(self, gpu: int, gib: float, utilisation: int = 0) -> None:
        self._held = gib
        pid = os.getpid()
        ticks = start_ticks(pid) or 0
        write_holder(
            self._task.folder, gpu, Holder(pid, ticks, int(gib * GIB), utilisation, self._task.arguments.served_name)
        )

    def _pass(self, seconds: float) -> None:
        """Let simulated time pass, to an absolute moment; end when the main process is gone."""
        self._at += seconds
        wait = real_wait(self._clock, self._at - self._clock.monotonic())
        if wait_for_word(self._link, wait) == b"":
            os._exit(0)

    def _wait_for_ever(self) -> NoReturn:
        while self._link.recv(64):
            pass
        os._exit(0)

    def _fail(self, text: str) -> NoReturn:
        """As SGLang: the traceback, then SIGQUIT to the main process, which kills everything."""
        self._log.line(text)
        os.kill(os.getppid(), signal.SIGQUIT)
        self._wait_for_ever()

    def _serve(self, gpu: int) -> None:
        words: dict[int, Callable[[], None]] = {
            BUSY[0]: lambda: self._hold(gpu, self._held, BUSY_PERCENT),
            IDLE[0]: lambda: self._hold(gpu, self._held),
            DIE[0]: lambda: os.kill(os.getpid(), signal.SIGKILL),
            RANK_LOST[0]: self._lose_rank,
        }
        while heard := self._link.recv(64):
            for word in heard:
                words[word]()

    def _lose_rank(self) -> NoReturn:
        self._log.line(failures.lost_rank())
        os.kill(os.getppid(), signal.SIGQUIT)
        os._exit(1)


def run_detokenizer(link: socket.socket) -> None:
    """The detokenizer holds nothing: it is there to be looked at and to be killed."""
    _become("sglang::detokenizer", "detokenizer_manager.py")
    while link.recv(64):
        pass


def run_resource_tracker(link: socket.socket) -> None:
    """Python's own helper of multiprocessing, which ignores what ends the others."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    retitle("python3 -c from multiprocessing.resource_tracker import main;main(28)")
    while link.recv(64):
        pass


def _become(title: str, source: str) -> None:
    def interrupted(number: int, frame: object) -> NoReturn:
        os.write(2, failures.interrupted(source, os.getpid()).encode())
        os._exit(1)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    retitle(title)
