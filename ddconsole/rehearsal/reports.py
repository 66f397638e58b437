"""What the simulated server tells of itself: model, arguments, load, metrics."""

from datetime import UTC, datetime
from typing import Any

from ddconsole.rehearsal.memory import CONTEXT, plan_memory
from ddconsole.rehearsal.service import Service

VERSION = "0.5.16+ddtree.simulated"


def model_info(service: Service) -> dict[str, Any]:
    """`/model_info`."""
    options = service.arguments.options
    return {
        "model_path": options.model_path,
        "tokenizer_path": options.tokenizer_path or options.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "simulated": True,
    }


def models(service: Service) -> dict[str, Any]:
    """`/v1/models`."""
    name = service.arguments.served_name
    model = {
        "id": name,
        "object": "model",
        "created": int(service.clock.now()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": service.arguments.context_tokens,
        "simulated": True,
    }
    return {"object": "list", "data": [model]}


def server_info(service: Service) -> dict[str, Any]:
    """`/server_info`: all arguments twice, as SGLang does, and the scheduler's state."""
    effective = service.arguments.effective()
    memory = plan_memory(service.arguments, 94.97)
    counts = service.counts
    state = {
        **effective,
        "last_gen_throughput": service.batch.last_rate,
        "memory_usage": {
            "weight": round(memory.weights + memory.draft, 2),
            "kvcache": round(max(memory.kv, 0.0), 2),
            "token_capacity": service.kv_tokens,
            "graph": memory.graphs,
        },
        "effective_max_running_requests_per_dp": service.arguments.max_running,
    }
    if service.arguments.method.speculative:
        steps = counts.average_steps
        state["avg_spec_accept_length"] = counts.average_tokens / steps if steps else 0.0
        state["max_speculative_num_draft_tokens"] = service.arguments.method.positions
    return {
        **effective,
        "status": "ready" if service.status == "Up" else service.status.lower(),
        "max_total_num_tokens": service.kv_tokens,
        "max_req_input_len": service.arguments.context_tokens - 6,
        "internal_states": [state],
        "version": VERSION,
        "kv_events": None,
        "simulated": True,
    }


def loads(service: Service) -> dict[str, Any]:
    """`/v1/loads`."""
    memory = plan_memory(service.arguments, 94.97)
    batch = service.batch
    load: dict[str, Any] = {
        "timestamp": service.clock.now(),
        "dp_rank": 0,
        "num_running_reqs": len(batch.running) + len(batch.prefilling),
        "num_waiting_reqs": len(batch.waiting),
        "num_waiting_uncached_tokens": sum(one.prompt_tokens - one.cached_tokens for one in batch.waiting),
        "num_used_tokens": batch.used_tokens,
        "num_total_tokens": batch.used_tokens,
        "max_total_num_tokens": service.kv_tokens,
        "max_running_requests": service.arguments.max_running,
        "token_usage": round(batch.used_tokens / max(service.kv_tokens, 1), 4),
        "gen_throughput": round(batch.last_rate, 2),
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "memory": {
            "weight_gb": round(memory.weights + memory.draft + CONTEXT, 3),
            "kv_cache_gb": round(max(memory.kv, 0.0), 3),
            "graph_gb": memory.graphs,
            "token_capacity": service.kv_tokens,
        },
        "queues": {"waiting": len(batch.waiting), "grammar": 0, "paused": 0, "retracted": 0},
    }
    positions = service.arguments.method.positions
    if service.arguments.method.speculative:
        acceptance = service.last_acceptance
        rate = (acceptance - 1) / (positions - 1) if acceptance else 0.0
        load["speculative"] = {"accept_length": round(acceptance, 4), "accept_rate": round(rate, 4)}
    stamp = datetime.fromtimestamp(service.clock.now(), UTC).isoformat()
    return {"timestamp": stamp, "version": VERSION, "loads": [load]}


def metrics(service: Service) -> str:
    """`/metrics`, in Prometheus' text form."""
    counts, batch = service.counts, service.batch
    name = service.arguments.served_name
    served = f'engine_type="unified",model_name="{name}"'
    ranked = f'{served},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    method = service.arguments.method
    acceptance = service.last_acceptance
    used = batch.used_tokens
    rows: list[tuple[str, str, str, float]] = [
        ("prompt_tokens_total", "counter", served, counts.prompt_tokens),
        ("generation_tokens_total", "counter", served, counts.output_tokens),
        ("cached_tokens_total", "counter", served, counts.cached_tokens),
        ("num_requests_total", "counter", served, counts.requests),
        ("num_aborted_requests_total", "counter", served, counts.aborted),
        ("num_running_reqs", "gauge", ranked, len(batch.running) + len(batch.prefilling)),
        ("num_queue_reqs", "gauge", ranked, len(batch.waiting)),
        ("gen_throughput", "gauge", ranked, batch.last_rate),
        ("token_usage", "gauge", ranked, round(used / max(service.kv_tokens, 1), 2)),
        ("full_token_usage", "gauge", ranked, used / max(service.kv_tokens, 1)),
        ("mamba_usage", "gauge", ranked, len(batch.running) / service.arguments.max_running),
        ("num_used_tokens", "gauge", ranked, used),
        ("max_total_num_tokens", "gauge", ranked, service.kv_tokens),
        ("cache_hit_rate", "gauge", ranked, 0.0),
        ("num_retracted_reqs", "gauge", ranked, 0.0),
        ("is_cuda_graph", "gauge", ranked, 0.0 if service.arguments.options.disable_cuda_graph else 1.0),
        ("simulated", "gauge", ranked, 1.0),
    ]
    if method.speculative:
        rate = (acceptance - 1) / (method.positions - 1) if acceptance and method.positions > 1 else 0.0
        rows += [
            ("spec_verify_calls_total", "counter", served, counts.verify_steps),
            ("spec_accept_length", "gauge", ranked, acceptance),
            ("spec_accept_rate", "gauge", ranked, rate),
            ("spec_num_draft_tokens", "gauge", ranked, method.positions),
        ]
    lines = [_metric(*row) for row in rows]
    passes = ((counts.prefill_passes, "prefill_none"), (counts.decode_passes, "decode_cuda_graph"))
    lines.append(_labelled("cuda_graph_passes_total", ranked, passes))
    tokens = ((counts.prefilled_tokens, "prefill_compute"), (counts.decoded_tokens, "decode"))
    lines.append(_labelled("realtime_tokens_total", ranked, tokens))
    return "".join(lines)


def _metric(name: str, kind: str, labels: str, value: float) -> str:
    head = f"# HELP sglang:{name} Simulated by ddconsole's rehearsal.\n# TYPE sglang:{name} {kind}\n"
    return f"{head}sglang:{name}{{{labels}}} {float(value)}\n"


def _labelled(name: str, labels: str, values: tuple[tuple[int, str], ...]) -> str:
    head = f"# HELP sglang:{name} Simulated by ddconsole's rehearsal.\n# TYPE sglang:{name} counter\n"
    rows = "".join(f'sglang:{name}{{mode="{mode}",{labels}}} {float(value)}\n' for value, mode in values)
    return head + rows
