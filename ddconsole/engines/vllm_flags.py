"""vLLM's command line: what ddconsole sets itself, typed speculation as JSON, the plan's own flags."""

import json
from collections.abc import Mapping
from typing import Any

from ddconsole.core.sweep import EngineArgument, Speculative
from ddconsole.engines.engine import EngineArgumentError, ServerCommand, ServerStart
from ddconsole.engines.environment import environment
from ddconsole.engines.flags import FlagRules, known_or_unasked, named, option, plan_argv

OWNED = frozenset(
    {
        *("--host", "--port", "--uds", "--model", "--served-model-name", "--config"),
        *("-tp", "--tensor-parallel-size", "--api-server-count", "--headless"),
        *("-dp", "--data-parallel-size", "-pp", "--pipeline-parallel-size"),
    }
)

RULES = FlagRules(owned=OWNED, equals=True, abbreviates=True, same={"sc": "speculative-config"})

METHODS: Mapping[str, str] = {
    "ngram": "ngram",
    "draft": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "dflash": "dflash",
}
"""`speculative.kind` in the words of `--speculative-config`."""

_NEEDS_NO_DRAFT = frozenset({"ngram", "mtp"})
_DEFAULT_TOKENS = 4
"""Tokens that n-gram speculation and draft models propose where the plan does not say."""
_DEVELOPMENT_MODE = "VLLM_SERVER_DEV_MODE"
"""Opens `/reset_prefix_cache`, without which no flush is sure."""
_DEFAULTS: Mapping[str, EngineArgument] = {"enable-prompt-tokens-details": True}
"""Set where the build has it and the plan does not say otherwise: cached tokens in `usage`."""


def server_command(start: ServerStart) -> ServerCommand:
    """The whole command line and environment of one start.

    Raises:
        EngineArgumentError: see `Engine.server_command`.
    """
    deployment = start.deployment
    by_plan = named(deployment.args, RULES)
    argv = [*start.command, start.model]
    own: dict[str, EngineArgument] = {
        "--served-model-name": start.served_name,
        "--host": start.host,
        "--port": start.port,
        "--tensor-parallel-size": deployment.tensor_parallel,
    }
    for flag, value in own.items():
        argv += option(flag, value, RULES, where=flag)
    argv += _size(start, by_plan)
    argv += _speculation(start, by_plan, wanted_speculation(start))
    for flag, value in _DEFAULTS.items():
        if flag not in by_plan and start.known_flags is not None and f"--{flag}" in start.known_flags:
            argv += option(f"--{flag}", value, RULES, where=flag)
    argv += plan_argv(deployment.args, start.known_flags, RULES)
    return ServerCommand(tuple(argv), {_DEVELOPMENT_MODE: "1", **environment(deployment)})


def wanted_speculation(start: ServerStart) -> Mapping[str, Any] | None:
    """What `--speculative-config` asks for, typed or by hand; None for the baseline.

    Raises:
        EngineArgumentError: it is no JSON object.
    """
    typed = start.deployment.speculative
    if typed is not None:
        return _typed(typed, typed.draft_model or start.draft)
    given = named(start.deployment.args, RULES).get("speculative-config")
    if given is None or given is False:
        return None
    try:
        config = json.loads(given) if isinstance(given, str) else None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise EngineArgumentError(
            "args.speculative-config", "is not a JSON object", 'write it as \'{"method": "ngram", ...}\''
        )
    return config


def _size(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    """`--max-num-seqs`: compared deployments get the same."""
    size = start.deployment.size
    given = by_plan.get("max-num-seqs")
    if given is None:
        return ["--max-num-seqs", str(size)] if size > 0 else []
    if isinstance(given, int) and not isinstance(given, bool) and given < size:
        raise EngineArgumentError(
            "args.max-num-seqs",
            f"{given} is below the largest concurrency of its cells ({size}): the rest would only queue",
            f"give at least {size}, or leave it out",
        )
    return []


def _speculation(
    start: ServerStart, by_plan: Mapping[str, EngineArgument], config: Mapping[str, Any] | None
) -> list[str]:
    if config is None or start.deployment.speculative is None:
        return []
    kind = start.deployment.speculative.kind
    if "speculative-config" in by_plan:
        raise EngineArgumentError(
            "args.speculative-config", f"`speculative: {{kind: {kind}}}` sets it already", "keep one of the two"
        )
    if not known_or_unasked(start.known_flags, "--speculative-config"):
        raise EngineArgumentError(
            "speculative.kind", "this build has no --speculative-config", "use a build of vLLM that has it"
        )
    return ["--speculative-config", json.dumps(config, sort_keys=True)]


def _typed(typed: Speculative, draft: str | None) -> Mapping[str, Any]:
    method = METHODS.get(typed.kind)
    if method is None:
        why = "vLLM has no tree drafts" if typed.kind == "ddtree" else f"vLLM has no speculation called {typed.kind!r}"
        raise EngineArgumentError("speculative.kind", why, f"use one of {', '.join(METHODS)}, or args of a fork")
    if typed.draft_tokens is not None:
        tokens = typed.draft_tokens
    else:
        # SGLang's block counts the token that the target gives; vLLM counts what is drafted alone.
        tokens = typed.block_size - 1 if typed.block_size is not None else _DEFAULT_TOKENS
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": tokens}
    if typed.kind == "ngram":
        config |= {"prompt_lookup_max": tokens, "prompt_lookup_min": 2}
    if typed.kind not in _NEEDS_NO_DRAFT:
        if draft is None:
            raise EngineArgumentError(
                "model.draft", f"`speculative: {{kind: {typed.kind}}}` needs a draft model", "give model.draft"
            )
        config["model"] = draft
    return config
