"""The checks before a launch: what would spoil it holds it back."""

from ddconsole.agent.launch_orders import LaunchOrders
from ddconsole.core.fold import RunState
from ddconsole.core.wire import Submission
from ddconsole.engines.engine import Engine
from ddconsole.runner.run_directory import RunDirectory


async def gate_findings(
    run: RunDirectory,
    submission: Submission,
    engine: Engine,
    orders: LaunchOrders,
    deployment: str,
    state: RunState,
) -> tuple[str, ...]:
    """Failing findings of the gate tier for one deployment, in words; empty when the launch may begin."""
    return ()
