"""What engines share of the OpenAI protocol: whose server answers, and the fields of a request."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines.catalogue import visible_evidence
from ddconsole.engines.engine import Answer, ServerApi, ServerStart


def served_names(models: Answer) -> frozenset[str]:
    """The ids and aliases in an answer of `/v1/models`."""
    if not isinstance(models.body, dict):
        return frozenset()
    entries = models.body.get("data")
    found: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            aliases = entry.get("aliases")
            found |= {str(name) for name in (entry.get("id"), *(aliases if isinstance(aliases, list) else ()))}
    return frozenset(found)


async def count_tokens(api: ServerApi, model: str, text: str) -> int | None:
    """Tokens of a text by the engine's own tokenizer, without special ones; None where it has no `/tokenize`."""
    asked = {"model": model, "prompt": text, "content": text, "add_special_tokens": False}
    answer = await api.post("/tokenize", asked)  # llama.cpp reads `content`, vLLM and SGLang `prompt`
    if answer.status != 200 or not isinstance(answer.body, dict):
        return None
    count, tokens = answer.body.get("count"), answer.body.get("tokens")
    if isinstance(count, int):
        return count
    return len(tokens) if isinstance(tokens, list) else None


def counting_each_chunk(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with which the engine tells its count in every chunk: vLLM and SGLang as usage, llama.cpp as timings.

    It makes chunks about twice as long, for server and client.
    """
    asked = {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return asked | {"timings_per_token": True} if "timings_per_token" in body else asked


def foreign_server(start: ServerStart, answer: Answer) -> Cause:
    """Something else listens on the port: it answers, and not to this launch's name."""
    names = ", ".join(sorted(served_names(answer)))
    said = f"it serves {names}" if names else f"/v1/models answers {answer.status}"
    return Cause(
        "FOREIGN-SERVER",
        f"another server answers on port {start.port}: {said}",
        visible_evidence([f"asked for {start.served_name}", answer.text[:300]]),
        "End the other server, or give another port; nothing was measured on it.",
        Retry.AS_IS,
    )


def sampling_fields(point: WorkloadPoint) -> dict[str, Any]:
    """Length, sampling and streaming of one request; what is None is left to the engine."""
    sampling = point.sampling
    body: dict[str, Any] = {
        "max_tokens": point.max_tokens,
        "temperature": sampling.temperature,
        "ignore_eos": sampling.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    optional = {"seed": sampling.seed, "top_p": sampling.top_p, "top_k": sampling.top_k}
    body |= {name: value for name, value in optional.items() if value is not None}
    if sampling.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
    return body
