"""Typed speculation in SGLang's dialects, and the proof that it is in effect.

DDTree is in no release: forks and overlays bring it, and they disagree on flags. The dialect is told from the build's
option strings, never assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.core.sweep import EngineArgument, Speculative
from ddconsole.engines.catalogue import visible_evidence
from ddconsole.engines.engine import EngineArgumentError

_DRAFTED = {"draft": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3"}
KINDS = ("dflash", "ddtree", "ngram", "draft", "eagle", "eagle3", "mtp")
"""What `speculative.kind` can be."""

DIALECTS: Mapping[str, tuple[str, ...]] = {
    "B": ("--speculative-ddtree-budget", "--speculative-ddtree-cpu-build"),
    "A": ("--speculative-ddtree-budget",),
    "C": ("--speculative-dflash-enable-ddtree", "--speculative-num-draft-tokens"),
}
"""DDTree's dialects, the most specific first, and the option strings each is told by."""


def ddtree_dialect(known: frozenset[str] | None) -> str | None:
    """`A`, `B` or `C`; None for a build without DDTree, or one whose `--help` could not be asked."""
    if known is None:
        return None
    return next((name for name, flags in DIALECTS.items() if all(flag in known for flag in flags)), None)


def speculation_arguments(
    typed: Speculative, draft: str | None, known: frozenset[str] | None
) -> dict[str, EngineArgument]:
    """The flags (without dashes) that `typed` means in this build.

    `draft_tokens` is SGLang's own `--speculative-num-draft-tokens`: tokens verified in one step, the last accepted one
    included, so `draft_tokens - 1` of them are drafted.

    Raises:
        EngineArgumentError: the build has no dialect for it, or a field is missing.
    """
    if typed.kind == "ddtree":
        return _ddtree(typed, _draft(typed, draft), known)
    if typed.kind == "dflash":
        return _dflash(typed, _draft(typed, draft), known)
    if typed.kind == "ngram":
        _require(typed, known, "--speculative-algorithm")
        return _left_out_where_none(
            {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": typed.draft_tokens}
        )
    if typed.kind == "mtp":
        _require(typed, known, "--speculative-algorithm")
        return {"speculative-algorithm": "NEXTN", **_chain(typed)}
    if typed.kind in _DRAFTED:
        _require(typed, known, "--speculative-algorithm", "--speculative-draft-model-path")
        return {
            "speculative-algorithm": _DRAFTED[typed.kind],
            "speculative-draft-model-path": _draft(typed, draft),
            **_chain(typed),
        }
    text = f"SGLang has no speculation called {typed.kind!r}"
    raise EngineArgumentError("speculative.kind", text, f"use one of {', '.join(KINDS)}, or args")


def _dflash(typed: Speculative, draft: str, known: frozenset[str] | None) -> dict[str, EngineArgument]:
    _require(typed, known, "--speculative-dflash-block-size", "--speculative-draft-model-path")
    return _left_out_where_none(
        {
            "speculative-algorithm": "DFLASH",
            "speculative-draft-model-path": draft,
            "speculative-num-draft-tokens": typed.block_size,
        }
    )


def _ddtree(typed: Speculative, draft: str, known: frozenset[str] | None) -> dict[str, EngineArgument]:
    looked_for = " or ".join(sorted({flags[0] for flags in DIALECTS.values()}))
    if known is None:
        raise EngineArgumentError(
            "speculative.kind",
            f"the build's --help could not be asked, so its DDTree dialect is unknown (looked for {looked_for})",
            "give the flags by hand under args",
        )
    dialect = ddtree_dialect(known)
    if dialect is None:
        raise EngineArgumentError(
            "speculative.kind",
            f"this build has no DDTree: none of {looked_for}",
            "point engine.python at a build that has it",
        )
    if typed.budget is None:
        raise EngineArgumentError("speculative.budget", "DDTree needs a node budget", "give speculative.budget")
    if dialect == "C":
        block = typed.block_size if "--speculative-dflash-block-size" in known else None
        return _left_out_where_none(
            {
                "speculative-algorithm": "DFLASH",
                "speculative-draft-model-path": draft,
                "speculative-dflash-enable-ddtree": True,
                "speculative-num-draft-tokens": typed.budget + 1,
                "speculative-dflash-block-size": block,
            }
        )
    # The block size is the draft's own here: it is compared with the plan's after the start, in the log.
    return {
        "speculative-algorithm": "DDTREE",
        "speculative-draft-model-path": draft,
        "speculative-ddtree-budget": typed.budget,
    }


def _chain(typed: Speculative) -> dict[str, EngineArgument]:
    """Autoregressive drafts: one chain of `draft_tokens - 1`; without a length SGLang's own choice stands."""
    if typed.draft_tokens is None:
        return {}
    if typed.draft_tokens < 2:
        raise EngineArgumentError("speculative.draft_tokens", f"{typed.draft_tokens} drafts nothing", "give 2 or more")
    return {
        "speculative-num-steps": typed.draft_tokens - 1,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": typed.draft_tokens,
    }


def _draft(typed: Speculative, draft: str | None) -> str:
    if draft is None:
        raise EngineArgumentError(
            "model.draft", f"`speculative: {{kind: {typed.kind}}}` needs a draft model", "give model.draft"
        )
    return draft


def _require(typed: Speculative, known: frozenset[str] | None, *flags: str) -> None:
    missing = [flag for flag in flags if known is not None and flag not in known]
    if missing:
        raise EngineArgumentError(
            "speculative.kind",
            f"this build cannot do {typed.kind}: it has no {' and no '.join(missing)}",
            "point engine.python at a build that has it",
        )


def _left_out_where_none(flags: Mapping[str, EngineArgument | None]) -> dict[str, EngineArgument]:
    return {flag: value for flag, value in flags.items() if value is not None}


# --- is it in effect? ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """What the server must say of itself."""

    algorithms: frozenset[str]
    """Effective names that count as it; empty for a baseline."""
    worker: str | None = None
    """Whose `Initialized ...` line must stand in the log: `DFLASH` or `DDTREE`."""
    draft_loaded: bool = False
    """A second model must have been loaded."""
    budget: int | None = None
    block_size: int | None = None


def expected_speculation(
    typed: Speculative | None, by_plan: Mapping[str, EngineArgument], known: frozenset[str] | None
) -> Expected:
    """From the deployment: its typed speculation, else the flags that the plan gives by hand."""
    if typed is None:
        return _expected_of_flags(by_plan)
    if typed.kind == "ddtree":
        names = {"DFLASH", "DDTREE"} if ddtree_dialect(known) == "C" else {"DDTREE"}
        return Expected(frozenset(names), "DDTREE", budget=typed.budget, block_size=typed.block_size)
    if typed.kind == "dflash":
        return Expected(frozenset({"DFLASH"}), "DFLASH", block_size=typed.block_size)
    if typed.kind == "ngram":
        return Expected(frozenset({"NGRAM"}))
    if typed.kind == "mtp":
        return Expected(frozenset({"NEXTN", "EAGLE"}), draft_loaded=True)
    return Expected(frozenset({_DRAFTED.get(typed.kind, typed.kind.upper())}), draft_loaded=True)


def _expected_of_flags(by_plan: Mapping[str, EngineArgument]) -> Expected:
    given = by_plan.get("speculative-algorithm")
    if given is None or isinstance(given, bool | tuple):
        return Expected(frozenset())
    name = str(given).upper()
    names = {"NEXTN", "EAGLE"} if name == "NEXTN" else {name}
    worker = name if name in {"DFLASH", "DDTREE"} else None
    if by_plan.get("speculative-dflash-enable-ddtree") is True:
        worker = "DDTREE"
    budget = by_plan.get("speculative-ddtree-budget")
    return Expected(frozenset(names), worker, budget=budget if isinstance(budget, int) else None)


def speculation_fault(expected: Expected, effective: Mapping[str, Any], told: Mapping[str, Any]) -> Cause | None:
    """What contradicts the deployment: the effective arguments, or the log's `Initialized ...` line.

    Args:
        expected: of the deployment.
        effective: read back from `/server_info`.
        told: the log reader's facts, complete up to its ready line.
    """
    algorithm = effective.get("speculative_algorithm")
    name = str(algorithm).upper() if algorithm else None
    if not expected.algorithms:
        return None if name is None else _off(f"the baseline runs with speculation {name}", told)
    wanted = "/".join(sorted(expected.algorithms))
    if name not in expected.algorithms:
        return _off(f"speculation {wanted} was asked for, the server runs {name or 'without any'}", told)
    if not _log_tells(effective):
        return None
    return _worker_fault(expected, effective, told)


def _worker_fault(expected: Expected, effective: Mapping[str, Any], told: Mapping[str, Any]) -> Cause | None:
    worker: Mapping[str, Any] = told.get("speculation") or {}
    if expected.worker is not None and worker.get("worker") != expected.worker:
        by_argument = effective.get("speculative_dflash_enable_ddtree") is True and worker.get("worker") == "DFLASH"
        if not (expected.worker == "DDTREE" and by_argument):
            return _off(f"the log does not say that a {expected.worker} worker was initialised", told)
    if expected.draft_loaded and len(told.get("models", ())) < 2:
        return _off("the log does not say that a draft model was loaded", told)
    for field, asked in (("budget", expected.budget), ("block_size", expected.block_size)):
        found = worker.get(field)
        if asked is not None and found is not None and found != asked:
            return _off(f"{field.replace('_', ' ')} {asked} was asked for, the server took {found}", told)
    return None


def _log_tells(effective: Mapping[str, Any]) -> bool:
    return str(effective.get("log_level") or "info").lower() in {"info", "debug"}


def _off(text: str, told: Mapping[str, Any]) -> Cause:
    worker: Mapping[str, Any] = told.get("speculation") or {}
    evidence = [str(line) for line in (worker.get("line"),) if line]
    do = "Compare the method's speculative fields with the build and the draft; the launch's log says what it took."
    return Cause("SPECULATION-OFF", text, visible_evidence(evidence), do, Retry.CHANGE)
