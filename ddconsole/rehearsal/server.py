"""The simulated SGLang server: `python -m ddconsole.rehearsal.server` with SGLang's command line."""

import asyncio
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ddconsole.core.clock import Clock, clock_from_environment
from ddconsole.rehearsal import failures
from ddconsole.rehearsal.arguments import ServerArguments, StartError, parse, without_speculation
from ddconsole.rehearsal.faults import FaultFileError, FaultName, FaultRule, claim_fault
from ddconsole.rehearsal.log import Log
from ddconsole.rehearsal.processes import Child, fork_child, kill_all
from ddconsole.rehearsal.scheduler import (
    BUSY,
    IDLE,
    SchedulerProcess,
    SchedulerTask,
    run_detokenizer,
    run_resource_tracker,
)
from ddconsole.rehearsal.state import NoRehearsalError, state_folder
from ddconsole.rehearsal.timing import real_wait

if TYPE_CHECKING:
    from aiohttp import web

    from ddconsole.rehearsal.life import Life
    from ddconsole.rehearsal.service import Service

WARNING_SECONDS = 5.7
ARGUMENTS_SECONDS = 7.9
CHILDREN_SECONDS = 9.6
WARM_UP_SECONDS = 1.3
"""Simulated seconds from the start: first output, resolved arguments, child processes; and from the open port to
readiness."""

_WARNING = """/opt/sglang/python/sglang/launch_server.py:56: UserWarning: 'python -m sglang.launch_server' is still \
supported, but 'sglang serve' is the recommended entrypoint.
  Example: sglang serve --model-path <model> [options]
  warnings.warn(
"""


def main() -> int:
    """Load, serve, and end as SGLang does."""
    clock = clock_from_environment()
    started = clock.monotonic()
    try:
        arguments = parse(sys.argv[1:], os.environ)
    except StartError as problem:
        sys.stderr.write(_WARNING + failures.refused_arguments(str(problem)))
        return 1
    try:
        folder = state_folder()
        fault = claim_fault(folder, arguments)
    except (NoRehearsalError, FaultFileError, OSError) as problem:
        sys.stderr.write(f"ddconsole.rehearsal.server: {problem}\n")
        return 1
    server = RehearsalServer(arguments, fault, clock, started, folder)
    server.spawn()
    # A selector of microseconds: epoll's milliseconds would be seconds of a fast rehearsal.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(server.serve())


class RehearsalServer:
    """One server's main process.

    Args:
        arguments: its command line.
        fault: what goes wrong with it.
        clock: the rehearsal's.
        started: when it was started, by the clock's monotonic seconds.
        folder: the rehearsal's state.
    """

    def __init__(
        self, arguments: ServerArguments, fault: FaultRule | None, clock: Clock, started: float, folder: Path
    ) -> None:
        self._asked = arguments
        unused = fault is not None and fault.fault is FaultName.DRAFT_NOT_USED
        self._arguments = without_speculation(arguments) if unused else arguments
        self._fault = fault
        self._clock = clock
        self._started = started
        self._folder = folder
        self._log = Log(clock)
        self._children: list[Child] = []

    def spawn(self) -> None:
        """Everything up to the child processes, in simulated time."""
        signal.signal(signal.SIGINT, self._interrupted_loading)
        signal.signal(signal.SIGQUIT, self._failed_loading)
        self._wait_until(WARNING_SECONDS)
        self._log.raw(_WARNING)
        self._wait_until(ARGUMENTS_SECONDS)
        self._log.line("SIMULATED by ddconsole's rehearsal: no model is loaded and no GPU is used.")
        told = ", ".join(f"{name}={value!r}" for name, value in self._arguments.effective().items())
        self._log.line(f"server_args=ServerArgs({told})")
        self._log.line("Using default HuggingFace chat template with detected content format: openai")
        if self._arguments.method.kind == "ddtree":
            self._log.line("Overlap scheduler is disabled when using DDTREE speculative decoding.")
        self._wait_until(CHILDREN_SECONDS)
        self._children.append(fork_child("resource_tracker", run_resource_tracker, self._children))
        for rank in range(self._arguments.tensor_parallel):
            task = SchedulerTask(self._arguments, rank, self._fault, self._clock, self._started, self._folder)

            def work(link: socket.socket, task: SchedulerTask = task) -> None:
                SchedulerProcess(task, link).run()

            self._children.append(fork_child(f"scheduler_{rank}", work, self._children))
        self._children.append(fork_child("detokenizer", run_detokenizer, self._children))

    async def serve(self) -> int:
        """Wait for the schedulers, open the port, serve until told to stop."""
        service, life, app = self._make()
        kv_tokens = await self._loaded()
        if kv_tokens is None:
            return self._lost_while_loading()
        service.kv_tokens = kv_tokens
        self._log.line(
            f"max_total_num_tokens={kv_tokens}, chunked_prefill_size={self._arguments.options.chunked_prefill_size}, "
            f"max_prefill_tokens={self._arguments.options.max_prefill_tokens}, "
            f"max_running_requests={self._arguments.max_running}, context_len={self._arguments.context_tokens}, "
            "available_gpu_mem=12.40 GB"
        )
        cache = "ChunkCache" if self._arguments.options.disable_radix_cache else "UnifiedRadixCache"
        self._log.line(f"Tree cache initialized: source=default impl={cache} hybrid_swa=False hybrid_ssm=True")
        self._log.line(f"INFO:     Started server process [{os.getpid()}]")
        self._log.line("INFO:     Waiting for application startup.")
        self._log.line("INFO:     Application startup complete.")
        life.watch()
        runner = await self._open_port(app, life)
        if runner is None:
            return await self._hang_without_port()
        await self._warm_up(service)
        await life.done.wait()
        life.end_children()
        await runner.cleanup()
        return 0

    # --- within ------------------------------------------------------------------------------------------------

    def _make(self) -> "tuple[Service, Life, web.Application]":
        """The serving parts; imported only now, so that the children were forked without aiohttp."""
        from ddconsole.rehearsal.api import Api  # noqa: PLC0415
        from ddconsole.rehearsal.batch import Batch  # noqa: PLC0415
        from ddconsole.rehearsal.life import Life  # noqa: PLC0415
        from ddconsole.rehearsal.service import Service  # noqa: PLC0415

        service = Service(self._arguments, self._clock, self._fault, self._set_busy)
        batch = Batch(
            self._clock,
            self._arguments.speed,
            self._arguments.max_running,
            self._arguments.options.decode_log_interval,
            service,
            asyncio.get_running_loop().call_later,
        )
        service.attach(batch)
        api = Api(service)
        life = Life(service, api, self._children, self._clock)
        return service, life, api.application()

    def _wait_until(self, seconds: float) -> None:
        due = self._started + seconds
        time.sleep(real_wait(self._clock, due - self._clock.monotonic()))

    async def _loaded(self) -> int | None:
        """KV tokens once every scheduler has reported; None when one of them is gone."""
        loop = asyncio.get_running_loop()
        tokens = 0
        for child in self._children:
            if not child.name.startswith("scheduler"):
                continue
            word = await loop.sock_recv(child.link, 4096)
            if not word:
                return None
            tokens = int(json.loads(word)["kv_tokens"])
        return tokens

    def _lost_while_loading(self) -> int:
        self._log.line("Rank 0 scheduler is dead. Please check if there are relevant logs.")
        self._log.raw(
            failures.traceback((("srt/entrypoints/engine.py", 1102, "_launch", "reader.recv()"),), "EOFError")
        )
        return 1

    async def _open_port(self, app: "web.Application", life: "Life") -> "web.AppRunner | None":
        from aiohttp import web  # noqa: PLC0415  # see _make

        options = self._arguments.options
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, options.host, options.port)
        try:
            if self._fault is not None and self._fault.fault is FaultName.PORT_TAKEN:
                raise OSError  # noqa: TRY301  # the same as the real thing, below
            await site.start()
        except OSError:
            self._log.line(
                f"ERROR:    [Errno 98] error while attempting to bind on address ('{options.host}', {options.port}): "
                "address already in use"
            )
            return None
        life.close = site.stop
        self._log.line(f"INFO:     Uvicorn running on http://{options.host}:{options.port} (Press CTRL+C to quit)")
        return runner

    async def _hang_without_port(self) -> int:
        """Seen: it holds its memory for ever, and only SIGKILL ends it."""
        self._log.line("INFO:     Waiting for application shutdown.")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, lambda: None)
        await asyncio.Event().wait()
        return 0

    async def _warm_up(self, service: "Service") -> None:
        await self._clock.sleep(WARM_UP_SECONDS)
        if not self._arguments.options.skip_server_warmup:
            service.probe_line()
            self._log.access('127.0.0.1:0 - "POST /generate HTTP/1.1" 200 OK')
        service.status = "Up"
        self._log.line("The server is fired up and ready to roll!")

    def _set_busy(self, busy: bool) -> None:
        for child in self._children:
            if child.name.startswith("scheduler") and child.exit_code is None:
                try:
                    child.link.send(BUSY if busy else IDLE)
                except OSError:
                    continue  # it is dead, which is noticed elsewhere

    def _interrupted_loading(self, *_: object) -> NoReturn:
        self._log.raw(
            failures.traceback((("launch_server.py", 70, "<module>", "run_server(server_args)"),), "KeyboardInterrupt")
        )
        os._exit(1)

    def _failed_loading(self, *_: object) -> None:
        pid = os.getpid()
        self._log.line("Received sigquit from a child process. It usually means the child failed.")
        self._log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        kill_all([child.pid for child in self._children])
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
