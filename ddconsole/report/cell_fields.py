"""One cell as a flat row in full precision: `results.csv`, `results.jsonl` and every CSV twin."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from ddconsole.report.result_set import PERCENTILES, CellResult, ResultSet
from ddconsole.report.statistics import Estimate

Field = bool | int | float | str | None


def cell_fields(result: ResultSet, cell: CellResult) -> dict[str, Field]:
    """Names carry their units: rates in tokens a second, times in seconds. What is not known is None."""
    figures = cell.figures
    fields: dict[str, Field] = {
        "cell": cell.cell,
        "method": cell.method,
        "tensor_parallel": cell.tensor_parallel,
        "deployment": cell.deployment.id,
        "workload": cell.point.workload,
        "load_mode": cell.point.kind,
        "prompts": cell.point.prompts,
        "concurrency": cell.point.concurrency,
        "request_rate": cell.point.rate,
        "arrivals": cell.point.arrivals or "",
        "max_tokens": cell.point.max_tokens,
        "state": cell.phase.value,
        "attempts": cell.tries,
        "counted_attempts": " ".join(str(one.number) for one in figures.attempts) if figures else "",
        "launches": figures.launches if figures else 0,
        "repetitions": figures.repetitions if figures else 0,
        "requests": figures.requests if figures else 0,
        "succeeded": figures.succeeded if figures else 0,
        "output_tokens": figures.output_tokens if figures else None,
    }
    fields |= _estimate("output_rate", figures.output_rate if figures else None)
    fields["server_rate"] = figures.server_rate if figures else None
    fields |= _estimate("speed_up", figures.speed_up if figures else None)
    acceptance = figures.acceptance if figures else None
    fields |= {
        "acceptance_length": acceptance.length if acceptance else None,
        "acceptance_tokens": acceptance.tokens if acceptance else None,
        "acceptance_steps": acceptance.steps if acceptance else None,
        "acceptance_source": acceptance.source if acceptance else "",
    }
    distributions = (
        ("ttft", figures.ttft if figures else None),
        ("tpot", figures.tpot if figures else None),
        ("end_to_end", figures.end_to_end if figures else None),
    )
    for name, times in distributions:
        for fraction in PERCENTILES:
            fields[f"{name}_p{fraction * 100:.0f}_s"] = times.at(fraction) if times else None
    fields |= {
        "chunk_gap_s": figures.chunk_gap if figures else None,
        "tokens_per_chunk": figures.tokens_per_chunk if figures else None,
        "goodput": figures.goodput if figures else None,
        "steady_rate": figures.steady_rate if figures else None,
        "steady_seconds": figures.steady_seconds if figures else None,
        "output_rate_bias": figures.rate_bias if figures else None,
        "step_time_s": figures.step_time if figures else None,
        "cached_tokens": figures.cached_tokens if figures else None,
        "achieved_concurrency": figures.achieved_concurrency if figures else None,
        "marks": " ".join(mark.name.lower().replace("_", "-") for mark in cell.marks),
        "simulated": result.simulated,
        "reasons": "; ".join(cell.reasons),
    }
    return fields


def csv_text(rows: Sequence[Mapping[str, Field]]) -> str:
    """RFC 4180, full precision; an unknown number is an empty field. Nothing is done against spreadsheet formulas."""
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\r\n")
        writer.writeheader()
        writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def cells_csv(result: ResultSet, cells: Iterable[CellResult]) -> str:
    """These cells as CSV."""
    return csv_text([cell_fields(result, cell) for cell in cells])


def results_jsonl(result: ResultSet) -> str:
    """One line a cell, after the run's name and the result set's SHA-256."""
    head: dict[str, Field] = {"run": result.run, "result_set_sha256": result.sha256}
    lines = (json.dumps(head | cell_fields(result, cell), ensure_ascii=False, allow_nan=False) for cell in result.cells)
    return "".join(f"{line}\n" for line in lines)


def _estimate(name: str, estimate: Estimate | None) -> dict[str, Field]:
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": estimate.low if estimate else None,
        f"{name}_high": estimate.high if estimate else None,
        f"{name}_range": estimate.sureness.value if estimate else "",
    }


def _field(value: Field) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
