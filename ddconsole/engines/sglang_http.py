"""SGLang over HTTP: readiness, counters, running requests, the flush.

`/health` generates a token and takes a second: it is asked only where the log cannot tell that the warm-up is over, and
never while measuring.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.engines.catalogue import cause_by_id
from ddconsole.engines.engine import Answer, Counters, Flush, LogReader, Readiness, ServerApi, ServerStart
from ddconsole.engines.flags import named
from ddconsole.engines.openai_api import foreign_server, served_names
from ddconsole.engines.prometheus import sums, whole
from ddconsole.engines.sglang_effective import effective_arguments, scheduler_state
from ddconsole.engines.sglang_flags import RULES
from ddconsole.engines.sglang_speculation import expected_speculation, speculation_fault

FLUSH_ATTEMPTS = 40
FLUSH_PAUSE = 0.25
"""Seconds between attempts: a client that left is decoded on for 2 s, and until then the flush is refused."""

HEALTH_TIMEOUT = 25.0
"""`/health` itself waits up to 20 s."""


async def check_ready(api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
    """See `Engine.check_ready`."""
    if "bind_failed" in log.facts:
        return Readiness(False, "the port is taken", cause_by_id("PORT-HTTP", (str(log.facts["bind_failed"]),)))
    try:
        waiting = await _not_yet(api, start, log)
        if waiting is not None:
            return waiting
        info = await api.get("/server_info")
    except (OSError, TimeoutError) as error:
        return Readiness(False, f"nothing answers on port {start.port} yet ({type(error).__name__})")
    if info.status != 200 or not isinstance(info.body, dict):
        return Readiness(False, f"/server_info answers {info.status}")
    return await _judge(api, start, log, info.body)


async def _not_yet(api: ServerApi, start: ServerStart, log: LogReader) -> Readiness | None:
    models = await api.get("/v1/models")
    if models.status in {401, 403, 404}:
        return Readiness(False, "another server answers", foreign_server(start, models))
    if models.status != 200:
        return Readiness(False, f"/v1/models answers {models.status}")
    if start.served_name not in served_names(models):
        return Readiness(False, "another server answers", foreign_server(start, models))
    info = await api.get("/model_info")
    if info.status == 404:
        info = await api.get("/get_model_info")
    if info.status != 200:
        return Readiness(False, f"/model_info answers {info.status}")
    return None


async def _judge(api: ServerApi, start: ServerStart, log: LogReader, info: Mapping[str, Any]) -> Readiness:
    effective = effective_arguments(info)
    build = {"engine": "sglang", "version": info.get("version")}
    if not log.facts.get("ready") and not await _warmed_up(api, effective):
        return Readiness(False, "the warm-up request is not over", effective=effective, build=build)
    deployment = start.deployment
    expected = expected_speculation(deployment.speculative, named(deployment.args, RULES), start.known_flags)
    cause = speculation_fault(expected, effective, log.facts) or _too_small(start, effective, log)
    effective |= {name: log.facts[name] for name in ("branches",) if name in log.facts}
    if cause is not None:
        return Readiness(False, cause.text, cause, effective, build)
    return Readiness(True, "ready", effective=effective, build=build)


async def _warmed_up(api: ServerApi, effective: Mapping[str, Any]) -> bool:
    """At `--log-level warning` the ready line is not printed: then `/health` tells, once the port is open."""
    if str(effective.get("log_level") or "info").lower() in {"info", "debug"}:
        return False
    try:
        return (await api.get("/health", timeout=HEALTH_TIMEOUT)).status == 200
    except (OSError, TimeoutError):
        return False


def _too_small(start: ServerStart, effective: Mapping[str, Any], log: LogReader) -> Cause | None:
    """Fewer running requests than the cells ask for: the rest would queue, and the concurrency would be a fiction."""
    limits = log.facts.get("limits") or {}
    found = [
        value
        for value in (
            effective.get("effective_max_running_requests_per_dp"),
            limits.get("max_running_requests"),
            effective.get("max_running_requests"),
        )
        if isinstance(value, int) and value > 0
    ]
    ranks = effective.get("dp_size")
    room = found[0] * (ranks if isinstance(ranks, int) else 1) if found else None
    if room is None or room >= start.deployment.size:
        return None
    return Cause(
        "SIZE-CAPPED",
        f"the server takes {room} running requests, its cells need {start.deployment.size}",
        do="Free memory for more (smaller budget, mamba-ssm-dtype, more GPUs), or lower the concurrency.",
        retry=Retry.CHANGE,
    )


async def counters(api: ServerApi) -> Counters | None:
    """See `Engine.counters`: `/metrics`, and where it does not count verify steps the scheduler's own average."""
    totals: dict[str, float] = {}
    answer = await api.get("/metrics")
    if answer.status == 200:
        totals = sums(answer.text, "sglang:")
    steps = whole(totals, "sglang:spec_verify_calls_total")
    raw = {name: value for name, value in totals.items() if name.endswith("_tokens_total") or ":spec_" in name}
    if steps is None:
        raw |= await _average_acceptance(api)
    if not totals and not raw:
        return None
    return Counters(
        output_tokens=whole(totals, "sglang:generation_tokens_total"),
        prompt_tokens=whole(totals, "sglang:prompt_tokens_total"),
        cached_tokens=whole(totals, "sglang:cached_tokens_total"),
        verify_steps=steps,
        ttft_count=whole(totals, "sglang:time_to_first_token_seconds_count"),
        ttft_seconds=totals.get("sglang:time_to_first_token_seconds_sum"),
        raw=raw,
    )


async def _average_acceptance(api: ServerApi) -> dict[str, float]:
    """`avg_spec_accept_length` since the start or the last flush: not a count, so it stands in `raw` only."""
    answer = await api.get("/server_info")
    if answer.status != 200 or not isinstance(answer.body, dict):
        return {}
    value = scheduler_state(answer.body).get("avg_spec_accept_length")
    return {"avg_spec_accept_length": float(value)} if isinstance(value, int | float) else {}


async def running_requests(api: ServerApi) -> int | None:
    """Running and waiting requests over all ranks."""
    answer = await api.get("/v1/loads")
    if answer.status == 200 and isinstance(answer.body, dict):
        return _sum_of(answer.body.get("loads"), ("num_running_reqs", "num_waiting_reqs"))
    answer = await api.get("/get_load")
    return _sum_of(answer.body, ("num_reqs",)) if answer.status == 200 else None


def _sum_of(ranks: Any, names: tuple[str, ...]) -> int | None:
    if not isinstance(ranks, list) or not ranks:
        return None
    total = 0
    for rank in ranks:
        for name in names:
            value = rank.get(name) if isinstance(rank, Mapping) else None
            if not isinstance(value, int):
                return None
            total += value
    return total


async def flush_cache(api: ServerApi) -> Flush:
    """Ask until it is done: it is refused while anything runs or waits."""
    last: Answer | None = None
    for attempt in range(FLUSH_ATTEMPTS):
        if attempt:
            await asyncio.sleep(FLUSH_PAUSE)
        last = await api.post("/flush_cache")
        if last.status == 200:
            return Flush(True, "flushed" if attempt == 0 else f"flushed at attempt {attempt + 1}")
        if last.status in {401, 404, 405}:
            break
    status = last.status if last is not None else None
    return Flush(False, f"/flush_cache answers {status}")
