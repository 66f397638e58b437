"""llama-server's command line: what ddconsole sets itself, typed speculation, the plan's own flags."""

from collections.abc import Mapping

from ddconsole.core.sweep import EngineArgument, Speculative
from ddconsole.engines.engine import EngineArgumentError, ServerCommand, ServerStart
from ddconsole.engines.environment import environment
from ddconsole.engines.flags import FlagRules, known_or_unasked, named, option, plan_argv

OWNED = frozenset(
    {
        *("-m", "--model", "-hf", "-hfr", "--hf-repo", "-mu", "--model-url"),
        *("--host", "--port", "-a", "--alias", "--metrics", "--slots", "--no-slots"),
        *("-np", "--parallel", "--slot-save-path"),
    }
)

RULES = FlagRules(
    owned=OWNED,
    equals=False,
    abbreviates=False,
    same={
        "c": "ctx-size",
        "cram": "cache-ram",
        "md": "spec-draft-model",
        "model-draft": "spec-draft-model",
        "sm": "split-mode",
    },
)

CONTEXT_STEP = 256
"""llama.cpp rounds each slot's context to this many tokens."""

TYPES: Mapping[str, str] = {
    "ngram": "ngram-simple",
    "draft": "draft-simple",
    "eagle": "draft-eagle3",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
}
"""`speculative.kind` in the words of `--spec-type`."""

_DRAFT_FLAGS = ("--spec-draft-model", "--model-draft", "-md")


def server_command(start: ServerStart) -> ServerCommand:
    """The whole command line and environment of one start.

    Raises:
        EngineArgumentError: see `Engine.server_command`.
    """
    by_plan = named(start.deployment.args, RULES)
    _refuse_tensor_parallel(start, by_plan)
    argv = list(start.command)
    for flag, value in _own(start, by_plan).items():
        argv += option(flag, value, RULES, where=flag)
    argv += _speculation(start, by_plan)
    argv += plan_argv(start.deployment.args, start.known_flags, RULES)
    return ServerCommand(tuple(argv), environment(start.deployment))


def speculates(start: ServerStart) -> bool:
    """Whether the deployment asks for speculation, typed or by the plan's own flags."""
    given = named(start.deployment.args, RULES).get("spec-type")
    return start.deployment.speculative is not None or given not in {None, False, "none"}


def _own(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> dict[str, EngineArgument]:
    deployment = start.deployment
    own: dict[str, EngineArgument] = {
        "--model": start.model,
        "--alias": start.served_name,
        "--host": start.host,
        "--port": start.port,
        "--metrics": True,
    }
    if known_or_unasked(start.known_flags, "--slots"):
        own["--slots"] = True
    if deployment.size > 0:
        own["--parallel"] = deployment.size
    if "ctx-size" not in by_plan and deployment.context_tokens > 0:
        own["--ctx-size"] = max(1, deployment.size) * _rounded(deployment.context_tokens)
    return own | _flushable(start.known_flags, by_plan)


def _flushable(known: frozenset[str] | None, by_plan: Mapping[str, EngineArgument]) -> dict[str, EngineArgument]:
    """What makes the prefix cache really empty after its slots are erased.

    Erasing needs `--slot-save-path` (nothing is saved there), and the second cache, in the host's memory, would bring
    the erased prompts back: it is off. A plan that wants that cache gets no erasing, so that no flush claims to be one.
    """
    if known is None or not {"--slot-save-path", "--cache-ram"} <= known:
        return {}
    if "cache-ram" in by_plan:
        return {"--slot-save-path": "."} if by_plan["cache-ram"] == 0 and by_plan["cache-ram"] is not False else {}
    return {"--slot-save-path": ".", "--cache-ram": 0}


def _rounded(tokens: int) -> int:
    return -(-tokens // CONTEXT_STEP) * CONTEXT_STEP


def _refuse_tensor_parallel(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> None:
    if start.deployment.tensor_parallel > 1 and by_plan.get("split-mode") in {None, False}:
        raise EngineArgumentError(
            "tensor_parallel",
            "llama.cpp splits a model over devices by --split-mode, which is not SGLang's tensor parallelism",
            "use tensor_parallel: [1], or say which split by args.split-mode",
        )


def _speculation(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    typed = start.deployment.speculative
    if typed is None:
        return _draft_of_raw_flags(start, by_plan)
    argv: list[str] = []
    for flag, value in _typed(typed, typed.draft_model or start.draft, start.known_flags).items():
        name = flag.lstrip("-")
        if RULES.same.get(name, name) in by_plan:
            text = f"`speculative: {{kind: {typed.kind}}}` sets it already"
            raise EngineArgumentError(f"args.{name}", text, "keep one of the two")
        argv += option(flag, value, RULES, where=f"speculative.{name}")
    return argv


def _draft_of_raw_flags(start: ServerStart, by_plan: Mapping[str, EngineArgument]) -> list[str]:
    """A type by hand that drafts with a model takes the plan's draft, where the method does not give one."""
    kind = by_plan.get("spec-type")
    drafts = isinstance(kind, str) and "draft-" in kind and kind != "draft-mtp"
    if not drafts or start.draft is None or "spec-draft-model" in by_plan:
        return []
    return option(_draft_flag(start.known_flags), start.draft, RULES, where="model.draft")


def _typed(typed: Speculative, draft: str | None, known: frozenset[str] | None) -> dict[str, EngineArgument]:
    name = TYPES.get(typed.kind)
    if name is None:
        looked_for = " (looked for --ddtree, --dflash-tree-budget)" if typed.kind == "ddtree" else ""
        raise EngineArgumentError(
            "speculative.kind",
            f"llama.cpp has no speculation called {typed.kind!r}{looked_for}",
            f"use one of {', '.join(TYPES)}, or args of a fork",
        )
    if not known_or_unasked(known, "--spec-type"):
        raise EngineArgumentError(
            "speculative.kind", "this build has no --spec-type", "use a build of llama.cpp that has it"
        )
    flags: dict[str, EngineArgument] = {"--spec-type": name}
    if typed.kind == "ngram":
        if typed.draft_tokens is not None:
            flags["--spec-ngram-simple-size-m"] = typed.draft_tokens
        return _checked(flags, known)
    if typed.kind != "mtp":
        if draft is None:
            raise EngineArgumentError(
                "model.draft", f"`speculative: {{kind: {typed.kind}}}` needs a draft model", "give model.draft"
            )
        flags[_draft_flag(known)] = draft
    most = typed.draft_tokens or (typed.block_size - 1 if typed.block_size else None)
    if most is not None:
        flags["--spec-draft-n-max"] = most
    return _checked(flags, known)


def _draft_flag(known: frozenset[str] | None) -> str:
    return next((flag for flag in _DRAFT_FLAGS if known_or_unasked(known, flag)), _DRAFT_FLAGS[0])


def _checked(flags: dict[str, EngineArgument], known: frozenset[str] | None) -> dict[str, EngineArgument]:
    missing = [flag for flag in flags if not known_or_unasked(known, flag)]
    if missing:
        raise EngineArgumentError(
            "speculative.kind", f"this build has no {' and no '.join(missing)}", "use a build of llama.cpp that has it"
        )
    return flags
