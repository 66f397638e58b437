"""What SGLang prints when something is wrong: the texts that failure catalogues match."""

from collections.abc import Mapping

_SITE = "/opt/sglang/python/sglang"
_POSSIBLE_SOLUTIONS = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose """
_CUDA_ADVICE = """CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below \
might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def in_scheduler(last: str, *frames: tuple[str, int, str, str]) -> str:
    """A failure inside a scheduler process, after its `Scheduler hit an exception: `.

    Args:
        last: the exception's own text.
        frames: file below the package, line, function, source line; after those of the start.
    """
    start = (
        ("srt/managers/scheduler.py", 4623, "run_scheduler_process", "scheduler = Scheduler("),
        ("srt/managers/scheduler.py", 431, "__init__", "self.init_model_worker()"),
    )
    return f"Scheduler hit an exception: {traceback((*start, *frames), last)}\n"


def traceback(frames: tuple[tuple[str, int, str, str], ...], last: str) -> str:
    """Python's form of it."""
    lines = ["Traceback (most recent call last):"]
    for file, line, function, source in frames:
        lines += [f'  File "{_SITE}/{file}", line {line}, in {function}', f"    {source}"]
    return "\n".join([*lines, last, ""])


def refused_arguments(reason: str) -> str:
    """The arguments are known, but not possible together."""
    frames = (
        ("launch_server.py", 68, "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
        ("srt/server_args.py", 3031, "__post_init__", "handle_speculative_decoding(self)"),
    )
    return traceback(frames, f"ValueError: {reason}")


def does_not_fit(fraction: float, viable: float) -> str:
    """The weights leave nothing. As seen, the advice misleads where somebody else holds the memory."""
    return in_scheduler(
        f"ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction}. "
        f"Raise --mem-fraction-static above {viable + 0.001:.3f} (minimum viable = 1 - available/pre = {viable:.4f}). "
        "If using speculative decoding, draft weights are now counted.",
        ("srt/managers/scheduler.py", 851, "init_model_worker", "self.init_memory_pools()"),
        ("srt/mem_cache/kv_cache_configurator.py", 1560, "_profile_available_bytes", "raise ValueError("),
    )


def no_room_for_states() -> str:
    """The recurrent states of all requests and draft tokens do not fit."""
    return in_scheduler(
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
        "Computed max_mamba_cache_size=0. Try: (1) reduce --max-running-requests, (2) increase "
        "--mem-fraction-static, (3) use --mamba-ssm-dtype bfloat16",
        ("srt/managers/scheduler.py", 851, "init_model_worker", "self.init_memory_pools()"),
        ("srt/mem_cache/kv_cache_configurator.py", 1702, "_handle_max_mamba_cache", "raise RuntimeError("),
    )


def out_of_memory(gpu: int, wanted: float, free: float, own: float, others: Mapping[int, float]) -> str:
    """PyTorch's text; sizes in GiB, `others` by process."""
    foreign = "".join(f"Process {pid} has {held:.2f} GiB memory in use. " for pid, held in others.items())
    return (
        f"CUDA out of memory. Tried to allocate {wanted:.2f} GiB. GPU {gpu} has a total capacity of 94.97 GiB of which "
        f"{free:.2f} GiB is free. {foreign}Including non-PyTorch memory, this process has {own:.2f} GiB memory in use. "
        f"Of the allocated memory {max(own - 0.6, 0.0):.2f} GiB is allocated by PyTorch, and 550.50 KiB is reserved by "
        "PyTorch but unallocated."
    )


def out_of_memory_loading(text: str) -> str:
    """While the weights are allocated."""
    return in_scheduler(
        f"torch.OutOfMemoryError: {text}",
        ("srt/managers/scheduler.py", 847, "init_model_worker", "self.init_tp_model_worker()"),
        ("srt/model_executor/model_runner.py", 990, "load_model", "self.model = get_model("),
        ("srt/layers/quantization/unquant.py", 186, "create_weights", "torch.empty("),
    )


def out_of_memory_capturing(text: str) -> str:
    """While graphs are captured: the advice stands in the exception."""
    return in_scheduler(
        f"Exception: Capture cuda graph failed: {text}\n{_POSSIBLE_SOLUTIONS}\n",
        ("srt/model_executor/model_runner.py", 839, "init_cuda_graphs", "capture = capture_cuda_graphs("),
        ("srt/model_executor/runner/decode_cuda_graph_runner.py", 409, "__init__", "raise Exception("),
    )


def driver_fault() -> str:
    """The driver refuses to work."""
    return in_scheduler(
        f"torch.AcceleratorError: CUDA error: unspecified launch failure\n{_CUDA_ADVICE}",
        ("srt/managers/scheduler.py", 771, "init_tp_model_worker", "self.tp_worker = TpModelWorker(**worker_kwargs)"),
        ("srt/model_executor/model_runner.py", 883, "init_torch_distributed", "result = bootstrap.init("),
    )


def too_few_gpus() -> str:
    """More ranks than GPUs."""
    return in_scheduler(
        "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
        f"GPU device may be out of range, do you have enough GPUs?\n{_CUDA_ADVICE}",
        ("srt/managers/scheduler.py", 771, "init_tp_model_worker", "self.tp_worker = TpModelWorker(**worker_kwargs)"),
        ("srt/distributed/bootstrap.py", 65, "init_torch_distributed", "torch.cuda.set_device(ps.gpu_id)"),
    )


def crash_while_loading(text: str | None) -> str:
    """Something in the loader."""
    return in_scheduler(
        text or "RuntimeError: simulated crash while the weights are loaded",
        ("srt/managers/scheduler.py", 847, "init_model_worker", "self.init_tp_model_worker()"),
        ("srt/model_loader/loader.py", 702, "load_model", "self.load_weights_and_postprocess("),
    )


def lost_rank() -> str:
    """What the other ranks say when one is killed."""
    frames = (
        ("srt/managers/scheduler.py", 4650, "run_scheduler_process", "scheduler.run_event_loop()"),
        ("srt/managers/scheduler.py", 1502, "recv_requests", "recv_reqs = broadcast_pyobj("),
    )
    last = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:41853: "
    return f"Scheduler hit an exception: {traceback(frames, last + 'Connection reset by peer')}\n"


def interrupted(process: str, pid: int) -> str:
    """Ctrl-C in a child process."""
    frames = (("srt/managers/" + process, 380, "event_loop", "recv_obj = self.recv_from_scheduler.recv_pyobj()"),)
    return f"Process Process-{pid}:\n{traceback(frames, 'KeyboardInterrupt')}"
