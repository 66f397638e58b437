"""A comparison as JSON."""

from typing import Any

from ddconsole.compare.changes import Change
from ddconsole.compare.comparison import Compared, Comparison, OneSided
from ddconsole.compare.differences import Difference
from ddconsole.compare.side import ComparedCell, Side
from ddconsole.report.statistics import Estimate


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All figures in full precision."""
    return {
        "runs": [_side_json(side) for side in (comparison.before, comparison.after)],
        "comparable": not comparison.refusals,
        "refusals": list(comparison.refusals),
        "least": comparison.least,
        "not_known": comparison.not_known,
        "changes": [
            {**_change_json(one), "follows": [_change_json(other) for other in one.follows]}
            for one in comparison.changes.found
        ],
        "equal_facts": dict(comparison.changes.equal),
        "told_by_one_only": list(comparison.changes.one_sided),
        "figures": {one.figure.id: _figure_json(one) for one in comparison.figures},
        "measured_in_one_only": [_one_sided_json(one) for one in comparison.one_sided],
        "other_prompts": list(comparison.other_prompts),
    }


def _change_json(one: Change) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("about", "name", "before", "after", "where", "note")}


def _side_json(side: Side) -> dict[str, Any]:
    names = ("run", "plan_name", "plan_sha256", "host", "simulated", "began", "data_time", "launches")
    told = {name: getattr(side, name) for name in names}
    return {**told, "cells": len(side.cells), "warnings": list(side.warnings)}


def _figure_json(one: Compared) -> dict[str, Any]:
    return {
        "higher_is_better": one.figure.higher_is_better,
        "cells": [_difference_json(cell) for cell in one.differences],
        "servers": [
            {
                "method": server.method,
                "tensor_parallel": server.tensor_parallel,
                "verdict": server.verdict.value,
                "p": server.p,
                "cells": server.cells,
                "regressed": server.regressed,
                "improved": server.improved,
                "ratio": estimate_json(server.ratio),
            }
            for server in one.servers
        ],
    }


def _difference_json(one: Difference) -> dict[str, Any]:
    return {
        **_cell_json(one.before),
        "cells": [one.before.cell, one.after.cell],
        "verdict": one.verdict.value,
        "before": estimate_json(one.old),
        "after": estimate_json(one.new),
        "ratio": estimate_json(one.ratio),
        "p": one.p,
        "prompts": one.prompts,
        "launches": list(one.launches),
        "disturbed": [one.before.flagged, one.after.flagged],
    }


def _one_sided_json(one: OneSided) -> dict[str, Any]:
    return {
        **_cell_json(one.cell),
        "cell": one.cell.cell,
        "measured_in": "A" if one.in_first else "B",
        "because": one.because,
        "lost": one.lost,
    }


def _cell_json(cell: ComparedCell) -> dict[str, Any]:
    point = cell.point
    return {
        "label": cell.label,
        "method": cell.deployment.method,
        "tensor_parallel": cell.deployment.tensor_parallel,
        "workload": point.workload,
        "load_mode": point.kind,
        "concurrency": point.concurrency,
        "request_rate": point.rate,
        "max_tokens": point.max_tokens,
    }


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """A figure with its ends and what they are."""
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "range": estimate.sureness.value,
    }
