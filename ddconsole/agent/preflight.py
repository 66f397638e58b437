"""Pre-flight checks of a submission on this host."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddconsole.agent.telemetry import Telemetry
from ddconsole.core.wire import Submission


async def preflight_findings(submission: Submission, tier: str, telemetry: Telemetry) -> Sequence[Mapping[str, Any]]:
    """The findings of a tier, as JSON."""
    return []
