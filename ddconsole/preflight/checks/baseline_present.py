"""The baseline is measured too, at every tensor-parallel size: without it there is no speed-up."""

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, warned
from ddconsole.preflight.facts import Facts


async def _run(facts: Facts) -> Verdict:
    deployments, baseline = facts.plan.deployments, facts.plan.baseline
    others = [one for one in deployments if one.method != baseline]
    if not others:
        return skipped("nothing is compared")
    expected = "the baseline at every tensor-parallel size of the other methods"
    if not baseline:
        return failed("the plan names no baseline", expected, "add `baseline:` and its method to the plan")
    sizes = {one.tensor_parallel for one in deployments if one.method == baseline}
    if not sizes:
        remedy = f"add the method {baseline} to the plan, or correct `baseline:`"
        return failed(f"no deployment has the method {baseline}", expected, remedy, about=baseline)
    missing = sorted({one.tensor_parallel for one in others} - sizes)
    if missing:
        observed = f"{baseline} is missing at tensor-parallel size {', '.join(map(str, missing))}"
        remedy = "take the baseline out of the plan's `skip`, or expect no speed-up for these"
        return warned(observed, expected, remedy, about=baseline)
    return passed(f"{baseline} at tensor-parallel size {', '.join(map(str, sorted(sizes)))}", expected)


CHECK = Check(
    "plan.baseline",
    "speed-ups can be given",
    _run,
    needs=(),
    blocks=("comparison",),
    tier=Tier.STANDARD,
)
