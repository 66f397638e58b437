"""The attention backend that SGLang is told fits the GPU and the model."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.sweep import Deployment
from ddconsole.preflight.check import Check, Outcome, Verdict, passed, skipped, unknown
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.model_files import read_json

FLAGS = (
    "attention-backend",
    "prefill-attention-backend",
    "decode-attention-backend",
    "speculative-draft-attention-backend",
)
_SEVERITY = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN, Outcome.PASS)
_CURE = "set `attention-backend: triton`"


async def _run(facts: Facts) -> Verdict:
    if facts.engine is None or facts.engine.kind != "sglang":
        return skipped("the engine has no choice of attention backends")
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    capabilities = {gpu.compute_capability.value for gpu in facts.needed()}
    if facts.host is None or not capabilities or None in capabilities:
        return unknown("the GPUs' compute capability is not known")
    hybrid, source = await _is_hybrid(facts)
    verdicts = [
        judge(deployment, flag, str(deployment.args[flag]), capability, hybrid)
        for deployment in facts.plan.deployments
        for flag in FLAGS
        if deployment.args.get(flag) not in {None, False}
        for capability in capabilities
        if capability is not None
    ]
    named = ", ".join(f"SM{major}{minor}" for major, minor in sorted(filter(None, capabilities)))
    evidence = [f"compute capability: {named}", f"recurrent layers (hybrid): {source}"]
    if not verdicts:
        return passed("left to the engine, which takes what fits", "a backend that fits", evidence)
    worst = min(verdicts, key=lambda one: _SEVERITY.index(one.outcome))
    others = tuple(dict.fromkeys(one.observed for one in verdicts if one.outcome is not Outcome.PASS))
    return Verdict(
        worst.outcome, worst.observed, f"one that fits {named}", worst.remedy, (*evidence, *others), worst.about
    )


def judge(deployment: Deployment, flag: str, backend: str, capability: tuple[int, int], hybrid: bool | None) -> Verdict:
    """One flag of one deployment on one kind of GPU. `hybrid` is None where the model could not be read.

    The rules are SGLang's own start-up checks and reported failures on SM120: see the facts on that GPU.
    """
    where = f"{deployment.label}: {flag} {backend}"
    major = capability[0]
    name = f"SM{capability[0]}{capability[1]}"
    if backend == "triton":
        return Verdict(Outcome.PASS, where)
    if backend == "fa3" and major not in {8, 9}:
        return Verdict(Outcome.FAIL, f"{where} runs on SM80 to SM90 only, this is {name}", "", _CURE, (), deployment.id)
    if backend.startswith("trtllm_") and major != 10:
        text = f"{where} is for data-centre Blackwell (SM100), this is {name}"
        return Verdict(Outcome.FAIL, text, "", _CURE, (), deployment.id)
    if backend in {"flashinfer", "fa3"} and major < 12:
        return Verdict(Outcome.PASS, where)
    if backend == "flashinfer":
        if hybrid is False:
            return Verdict(Outcome.PASS, where)
        text = f"{where} on {name} with recurrent layers depends on the version: 0.5.9 refuses it, later ones take it"
        return Verdict(Outcome.WARN, text, "", f"{_CURE}, unless this version was seen to work", (), deployment.id)
    if major == 12 and hybrid and backend != "fa4":
        text = (
            f"{where} is refused on {name} for models with recurrent layers: only triton, flashinfer, fa4, trtllm_mha"
        )
        return Verdict(Outcome.FAIL, text, "", _CURE, (), deployment.id)
    text = f"{where}: nothing is known about it on {name}"
    return Verdict(Outcome.UNKNOWN, text, "", f"try one launch, or {_CURE}", (), deployment.id)


async def _is_hybrid(facts: Facts) -> tuple[bool | None, str]:
    """Whether the model has recurrent (linear attention) layers, by its config.json; and how that is known."""
    path = f"{facts.plan.model.rstrip('/')}/config.json"
    try:
        config = await read_json(facts.machine, path)
    except OSError as problem:
        return None, f"unknown, {path}: {problem.strerror or problem}"
    if config is None:
        return None, f"unknown, {path} is no JSON object"
    return has_recurrent_layers(config), f"{'yes' if has_recurrent_layers(config) else 'no'}, by {path}"


def has_recurrent_layers(config: Mapping[str, Any]) -> bool:
    """Whether a Hugging Face configuration describes layers with a recurrent state (GDN, Mamba)."""
    text = config.get("text_config")
    inner = text if isinstance(text, Mapping) else config
    kinds = inner.get("layer_types")
    if isinstance(kinds, list):
        return any("linear" in str(kind) or "mamba" in str(kind) for kind in kinds)
    return any(name in inner for name in ("linear_num_value_heads", "full_attention_interval", "mamba_d_state"))


CHECK = Check(
    "engine.attention-backend",
    "the attention backend fits GPU and model",
    _run,
    needs=("host.reachable", "driver.answers", "gpu.count"),
)
