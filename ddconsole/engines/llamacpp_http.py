"""llama-server over HTTP: readiness, counters, running requests, the flush."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.engines.catalogue import cause_by_id, visible_evidence
from ddconsole.engines.engine import Counters, Flush, LogReader, Readiness, ServerApi, ServerStart
from ddconsole.engines.llamacpp_flags import speculates
from ddconsole.engines.openai_api import foreign_server, served_names
from ddconsole.engines.prometheus import sums, whole


async def check_ready(api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
    """See `Engine.check_ready`. `/health` costs nothing here, and answers 503 while the model loads."""
    if "bind_failed" in log.facts:
        return Readiness(False, "the port is taken", cause_by_id("LC-BIND", (str(log.facts["bind_failed"]),)))
    try:
        health = await api.get("/health")
        if health.status == 503:
            return Readiness(False, "the model is loading")
        if health.status != 200:
            return Readiness(False, f"/health answers {health.status}")
        models = await api.get("/v1/models")
        if start.served_name not in served_names(models):
            return Readiness(False, "another server answers", foreign_server(start, models))
        props = await api.get("/props")
        slots = await api.get("/slots")
    except (OSError, TimeoutError) as error:
        return Readiness(False, f"nothing answers on port {start.port} yet ({type(error).__name__})")
    effective = _effective(props.body, slots.body)
    build = {"engine": "llamacpp", "version": _of(props.body, "build_info")}
    cause = _speculation_fault(start, slots.body, log.facts) or _too_small(start, effective)
    if cause is not None:
        return Readiness(False, cause.text, cause, effective, build)
    return Readiness(True, "ready", effective=effective, build=build)


def _effective(props: Any, slots: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: _of(props, name) for name in ("total_slots", "model_path", "model_ftype", "endpoint_metrics")
    }
    settings = _of(props, "default_generation_settings")
    found["context_per_slot"] = _of(settings, "n_ctx")
    found["speculative"] = _speculating(slots)
    return {name: value for name, value in found.items() if value is not None}


def _speculating(slots: Any) -> bool | None:
    """Whether every slot speculates; None where the build does not tell."""
    told = [slot.get("speculative") for slot in slots if isinstance(slot, Mapping)] if isinstance(slots, list) else []
    known = [value for value in told if isinstance(value, bool)]
    return all(known) if known else None


def _speculation_fault(start: ServerStart, slots: Any, told: Mapping[str, Any]) -> Cause | None:
    """A draft that does not fit leaves the server healthy and without speculation: two things tell."""
    in_effect = _speculating(slots)
    if not speculates(start):
        return _off("the baseline runs with speculation", ()) if in_effect else None
    line = told.get("speculation_refused")
    if line is not None:
        return _off("the server refused the draft and runs without speculation", (str(line),))
    if in_effect is False:
        return _off("speculation was asked for, the server's slots do not speculate", ())
    return None


def _off(text: str, evidence: tuple[str, ...]) -> Cause:
    do = "Use a draft with the target's vocabulary, or another spec-type; the launch's log says what was refused."
    return Cause("SPECULATION-OFF", text, visible_evidence(evidence), do, Retry.CHANGE)


def _too_small(start: ServerStart, effective: Mapping[str, Any]) -> Cause | None:
    size, needed = start.deployment.size, start.deployment.context_tokens
    slots, context = effective.get("total_slots"), effective.get("context_per_slot")
    if isinstance(slots, int) and slots < size:
        text = f"the server has {slots} slots, its cells need {size}"
        return Cause("SIZE-CAPPED", text, do="Lower the concurrency, or free memory.", retry=Retry.CHANGE)
    if isinstance(context, int) and 0 < context < needed:
        text = f"a slot holds {context} tokens, the longest request needs {needed}"
        do = "Raise args.ctx-size (it is shared by all slots), or leave it out."
        return Cause("CONTEXT-CAPPED", text, do=do, retry=Retry.CHANGE)
    return None


async def counters(api: ServerApi) -> Counters | None:
    """See `Engine.counters`.

    llama.cpp counts the steps that drafted something, and no others.
    """
    answer = await api.get("/metrics")
    if answer.status != 200:
        return None
    totals = sums(answer.text, "llamacpp:")
    tokens = whole(totals, "llamacpp:tokens_predicted_total")
    accepted = whole(totals, "llamacpp:spec_decode_num_accepted_tokens_total")
    return Counters(
        output_tokens=tokens,
        prompt_tokens=whole(totals, "llamacpp:prompt_tokens_total"),
        cached_tokens=whole(totals, "llamacpp:prompt_tokens_cached_total"),
        drafting_steps=whole(totals, "llamacpp:spec_decode_num_drafts_total"),
        drafted=whole(totals, "llamacpp:spec_decode_num_draft_tokens_total"),
        accepted=accepted,
        raw={name: value for name, value in totals.items() if name.endswith("_total")},
    )


async def running_requests(api: ServerApi) -> int | None:
    """Requests in slots and waiting for one."""
    answer = await api.get("/metrics")
    totals = sums(answer.text, "llamacpp:requests_") if answer.status == 200 else {}
    running = whole(totals, "llamacpp:requests_processing")
    if running is not None:
        return running + (whole(totals, "llamacpp:requests_deferred") or 0)
    answer = await api.get("/slots")
    if answer.status != 200 or not isinstance(answer.body, list):
        return None
    return sum(1 for slot in answer.body if isinstance(slot, Mapping) and slot.get("is_processing") is True)


async def flush_cache(api: ServerApi) -> Flush:
    """Erase every slot. It is a flush because the server was started without the second cache, in host memory."""
    slots = await api.get("/slots")
    if slots.status != 200 or not isinstance(slots.body, list):
        return Flush(False, f"/slots answers {slots.status}")
    for slot in slots.body:
        number = _of(slot, "id")
        answer = await api.post(f"/slots/{number}?action=erase", {})
        if answer.status == 501:
            detail = "slots of this server cannot be erased; single and closed-loop requests carry cache_prompt: false"
            return Flush(False, detail)
        if answer.status != 200:
            return Flush(False, f"erasing slot {number} answers {answer.status}")
    return Flush(True, f"{len(slots.body)} slots erased")


def _of(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, Mapping) else None
