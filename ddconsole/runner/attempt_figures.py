"""What the journal holds of an attempt's figures: the summary, and what screens say beside it without the file."""

from collections.abc import Sequence
from typing import Any

from ddconsole.core.figures import Summary
from ddconsole.core.outliers import outlying_requests
from ddconsole.core.outputs import outputs_of
from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import WorkloadPoint, to_json
from ddconsole.runner.warm_up import WarmUp


def figures_told(
    summary: Summary, point: WorkloadPoint, records: Sequence[RequestRecord], warmed: WarmUp
) -> dict[str, Any]:
    """As in `AttemptDone.figures`; read by `ddconsole.core.cell_notes`."""
    return {
        **to_json(summary),
        "warm_up": warmed.to_json(),
        "prompt_tokens": sum(record.prompt_tokens or 0 for record in records),
        "outputs": outputs_of(point, records),
        "outliers": list(outlying_requests(records)),
    }
