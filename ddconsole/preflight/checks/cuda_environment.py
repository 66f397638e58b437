"""No variable slows the servers down or gives GPUs another order than the plan's."""

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, warned
from ddconsole.preflight.facts import Facts

_SLOWING = {
    "CUDA_LAUNCH_BLOCKING": "every kernel waits for the one before",
    "CUDA_INJECTION64_PATH": "a tracing library is loaded into every process",
    "NSIGHT_CUDA_DEBUGGER": "a debugger is attached",
    "CUDA_PROFILE": "the old profiler writes",
    "COMPUTE_PROFILE": "the old profiler writes",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "a fault stops the GPU and waits for a debugger",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "a fault writes the GPU's memory to disk",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "torch asks NVML, and says yes where CUDA is dead",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated anew",
}
_EXPECTED = "nothing that slows or reorders"
_OFF = frozenset({"", "0", "false", "no"})


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    planned = dict(facts.plan.engine_env)
    for one in facts.plan.deployments:
        planned.update(one.env)
    everything = {**facts.environment, **planned}
    slowing = {name: what for name, what in _SLOWING.items() if everything.get(name, "").strip().lower() not in _OFF}
    evidence = [f"{'plan' if name in planned else 'environment'}: {name}={everything[name]}" for name in slowing]
    order = planned.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if order != "PCI_BUS_ID":
        observed = f"CUDA_DEVICE_ORDER={order}: CUDA numbers GPUs by speed, the plan's placement by PCI address"
        return failed(observed, _EXPECTED, "take it out of the plan: PCI_BUS_ID is set for every server", evidence)
    if slowing:
        observed = "; ".join(f"{name}: {what}" for name, what in slowing.items())
        remedy = "unset it where the agent is started, or take it out of the plan"
        return failed(observed, _EXPECTED, remedy, evidence, next(iter(slowing)))
    visible = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        observed = f"the environment sets CUDA_VISIBLE_DEVICES={visible}; the placement overrides it for servers"
        return warned(observed, _EXPECTED, "unset it: other programs of this user see other GPUs than servers do")
    return passed("none of them is set", _EXPECTED, ["environment and plan: looked through"])


CHECK = Check("cuda.env", "no variable slows servers or reorders GPUs", _run, needs=())
