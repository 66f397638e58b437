"""SGLang's command line: what ddconsole sets itself, typed speculation in the build's dialect, the plan's own flags."""

from collections.abc import Mapping

from ddconsole.core.sweep import EngineArgument
from ddconsole.engines.engine import EngineArgumentError, ServerCommand, ServerStart
from ddconsole.engines.environment import environment
from ddconsole.engines.flags import (
    FlagRules,
    known_or_unasked,
    named,
    option,
    plan_argv,
)
from ddconsole.engines.sglang_speculation import speculation_arguments

OWNED = frozenset(
    {
        "--host",
        "--port",
        "--model-path",
        "--model",
        "--served-model-name",
        "--tp-size",
        "--tensor-parallel-size",
        "--base-gpu-id",  # the placement decides, through CUDA_VISIBLE_DEVICES
        "--gpu-id-step",
        "--enable-metrics",
        "--config",  # a file could set any of these
    }
)

RULES = FlagRules(
    owned=OWNED,
    equals=True,
    abbreviates=True,
    same={"speculative-draft-model": "speculative-draft-model-path", "speculative-algo": "speculative-algorithm"},
)

_DEFAULTS: Mapping[str, EngineArgument] = {"decode-log-interval": 10, "enable-cache-report": True}
"""Set where the build has them and the plan does not say otherwise: live figures, and cached tokens in `usage`."""


def server_command(start: ServerStart) -> ServerCommand:
    """The whole command line and environment of one start.

    Raises:
        EngineArgumentError: see `Engine.server_command`.
    """
    deployment = start.deployment
    by_plan = named(deployment.args, RULES)
    argv = list(start.command)
    for flag, value in _own(start).items():
        argv += option(f"--{flag}", value, RULES, where=flag)
    argv += _size(start, by_plan)
    argv += _speculation(start, by_plan)
    for flag, value in _DEFAULTS.items():
        if flag not in by_plan and start.known_flags is not None and f"--{flag}" in start.known_flags:
            argv += option(f"--{flag}", value, RULES, where=flag)
    argv += plan_argv(deployment.args, start.known_flags, RULES)
    return ServerCommand(tuple(argv), environment(deployment))


def speculates(start: ServerStart) -> bool:
    """Whether the deployment asks for speculation, typed or by the plan's own flags."""
    algorithm = named(start.deployment.args, RULES).get("speculative-algorithm")
    return start.deployment.speculative is not None or algorithm not in {None, False}


def _own(start: ServerStart) -> dict[str, EngineArgument]:
    return {
        "model-path": start.model,
        "served-model-name": start.served_name,
        "host": start.host,
        "port": start.port,
        "tp-size": start.deployment.tensor_parallel,
        "enable-metrics": known_or_unasked(start.known_flags, "--enable-metrics"),
    }


def _size(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    """`--max-running-requests`: without it SGLang takes 48 under speculation and thousands without."""
    size = start.deployment.size
    given = by_plan.get("max-running-requests")
    if given is None:
        return ["--max-running-requests", str(size)] if size > 0 else []
    if isinstance(given, int) and not isinstance(given, bool) and given < size:
        raise EngineArgumentError(
            "args.max-running-requests",
            f"{given} is below the largest concurrency of its cells ({size}): the rest would only queue",
            f"give at least {size}, or leave it out",
        )
    return []


def _speculation(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    typed = start.deployment.speculative
    if typed is None:
        return _draft_of_raw_flags(start, by_plan)
    argv: list[str] = []
    for flag, value in speculation_arguments(typed, typed.draft_model or start.draft, start.known_flags).items():
        if flag in by_plan:
            raise EngineArgumentError(
                f"args.{flag}", f"`speculative: {{kind: {typed.kind}}}` sets it already", "keep one of the two"
            )
        argv += option(f"--{flag}", value, RULES, where=f"speculative.{flag}")
    return argv


def _draft_of_raw_flags(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    """Flags by hand name the algorithm; the model's draft is still the plan's, where the method does not give one."""
    algorithm = by_plan.get("speculative-algorithm")
    needs_none = algorithm in {None, False} or str(algorithm).upper() in {"NGRAM", "NEXTN"}
    if needs_none or start.draft is None or "speculative-draft-model-path" in by_plan:
        return []
    return option("--speculative-draft-model-path", start.draft, RULES, where="model.draft")
