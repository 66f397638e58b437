"""vLLM over HTTP: readiness, counters, running requests, the flush."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.engines.catalogue import cause_by_id
from ddconsole.engines.engine import Counters, Flush, LogReader, Readiness, ServerApi, ServerStart
from ddconsole.engines.openai_api import foreign_server, served_names
from ddconsole.engines.prometheus import by_label, sums, whole
from ddconsole.engines.vllm_flags import wanted_speculation

_NO_DRAFT_COUNTED = "vllm:spec_decode_num_drafts_total"


async def check_ready(api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
    """See `Engine.check_ready`. The port opens when the engine is ready; `/health` generates nothing."""
    if "bind_failed" in log.facts:
        return Readiness(False, "the port is taken", cause_by_id("PORT-HTTP", (str(log.facts["bind_failed"]),)))
    try:
        health = await api.get("/health")
        if health.status != 200:
            return Readiness(False, f"/health answers {health.status}")
        models = await api.get("/v1/models")
        if start.served_name not in served_names(models):
            return Readiness(False, "another server answers", foreign_server(start, models))
        version = await api.get("/version")
        metrics = await api.get("/metrics")
    except (OSError, TimeoutError) as error:
        return Readiness(False, f"nothing answers on port {start.port} yet ({type(error).__name__})")
    effective = _effective(log.facts, models.body)
    told = version.body.get("version") if isinstance(version.body, Mapping) else None
    build = {"engine": "vllm", "version": told or log.facts.get("version")}
    cause = _speculation_fault(start, log.facts, counted=_NO_DRAFT_COUNTED in metrics.text)
    if cause is not None:
        return Readiness(False, cause.text, cause, effective, build)
    return Readiness(True, "ready", effective=effective, build=build)


def _effective(facts: Mapping[str, Any], models: Any) -> dict[str, Any]:
    entries = models.get("data") if isinstance(models, Mapping) else None
    first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], Mapping) else {}
    found: dict[str, Any] = dict(facts.get("effective", {}))
    found["max_model_len"] = first.get("max_model_len")
    found["attention_backend"] = facts.get("attention_backend")
    found["kv_tokens"] = facts.get("kv_tokens")
    speculation = facts.get("speculation")
    if isinstance(speculation, Mapping):
        found |= {f"speculative_{name}": value for name, value in speculation.items()}
    return {name: value for name, value in found.items() if value is not None}


def _speculation_fault(start: ServerStart, facts: Mapping[str, Any], *, counted: bool) -> Cause | None:
    """Compare what was asked with what the engine's configuration says; where it says nothing, with its counters."""
    wanted = wanted_speculation(start)
    told = facts.get("speculation") if "speculation" in facts else ({} if counted else None)
    if wanted is None:
        return None if told is None else _off("the baseline runs with speculation")
    if told is None:
        return _off("speculation was asked for, and the engine runs without it")
    for name in ("method", "num_speculative_tokens"):
        if name in wanted and name in told and told[name] != wanted[name]:
            return _off(f"the engine speculates with {name} {told[name]}, asked for was {wanted[name]}")
    return None


def _off(text: str) -> Cause:
    do = "Look at the launch's log for what it made of --speculative-config."
    return Cause("SPECULATION-OFF", text, (), do, Retry.CHANGE)


async def counters(api: ServerApi) -> Counters | None:
    """See `Engine.counters`. vLLM counts the steps that drafted something, and no others."""
    answer = await api.get("/metrics")
    if answer.status != 200:
        return None
    totals = sums(answer.text, "vllm:")
    cached = whole(totals, "vllm:prompt_tokens_cached_total")
    return Counters(
        output_tokens=whole(totals, "vllm:generation_tokens_total"),
        prompt_tokens=whole(totals, "vllm:prompt_tokens_total"),
        cached_tokens=cached if cached is not None else whole(totals, "vllm:prefix_cache_hits_total"),
        drafting_steps=whole(totals, _NO_DRAFT_COUNTED),
        drafted=whole(totals, "vllm:spec_decode_num_draft_tokens_total"),
        accepted=whole(totals, "vllm:spec_decode_num_accepted_tokens_total"),
        accepted_at=by_label(answer.text, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"),
        ttft_count=whole(totals, "vllm:time_to_first_token_seconds_count"),
        ttft_seconds=totals.get("vllm:time_to_first_token_seconds_sum"),
        raw={name: value for name, value in totals.items() if name.endswith("_total")},
    )


async def running_requests(api: ServerApi) -> int | None:
    """Requests that run, and that wait."""
    answer = await api.get("/metrics")
    totals = sums(answer.text, "vllm:num_requests_") if answer.status == 200 else {}
    running = whole(totals, "vllm:num_requests_running")
    return None if running is None else running + (whole(totals, "vllm:num_requests_waiting") or 0)


async def flush_cache(api: ServerApi) -> Flush:
    """Empty the prefix cache. The path is there in vLLM's development mode, in which ddconsole starts it."""
    answer = await api.post("/reset_prefix_cache", {})
    if answer.status == 200:
        return Flush(True, "prefix cache reset")
    if answer.status == 404:
        return Flush(False, "this build has no /reset_prefix_cache; args.enable-prefix-caching: false is sure")
    return Flush(False, f"/reset_prefix_cache answers {answer.status}")
