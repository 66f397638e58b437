"""The torch that servers will use sees the GPUs and has kernels for them."""

from collections.abc import Sequence

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, unknown
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.judge_load import NEEDS, nothing_was_done

_ID = "load.torch"


async def _run(facts: Facts) -> Verdict:
    nothing = nothing_was_done(facts)
    load = facts.load
    if nothing is not None or load is None:
        return nothing or unknown("no load was put on any GPU")
    torch = load.torch
    if not torch:
        text = load.problem or load.hung or "the serving environment's torch said nothing"
        return unknown(text, "run the plan's interpreter by hand: `python -c 'import torch; torch.cuda.init()'`")
    devices, kernels = torch.get("devices", []), torch.get("kernels", [])
    evidence = [
        f"torch {torch.get('version')} for CUDA {torch.get('cuda')}, kernels: {' '.join(kernels) or 'none told'}",
        *(f"torch device {place}: {one['name']} {one['capability']}" for place, one in enumerate(devices)),
    ]
    expected = f"{len(load.gpus)} GPUs, with kernels for each"
    if not torch.get("available"):
        said = str(torch.get("said") or "it gives no reason")
        remedy = "a torch for this driver's CUDA, not one for CPUs; and no CUDA_VISIBLE_DEVICES that hides the GPUs"
        return failed(f"torch.cuda is not available: {said}", expected, remedy, evidence)
    if len(devices) != len(load.gpus):
        observed = f"torch sees {len(devices)} of the {len(load.gpus)} GPUs that it was shown"
        return failed(observed, expected, "compare with `nvidia-smi -L`; look at the device nodes", evidence)
    if not kernels:
        return unknown("torch does not tell what it has kernels for", "", evidence)
    without = sorted({tuple(one["capability"]) for one in devices if not has_kernels(kernels, one["capability"])})
    if without:
        observed = f"no kernels for sm_{''.join(map(str, without[0]))}"
        remedy = f"a torch that was built for it (this one: {' '.join(kernels)})"
        return failed(observed, expected, remedy, evidence)
    return passed(f"torch {torch.get('version')} sees {len(devices)} GPUs", expected, evidence)


def has_kernels(kernels: Sequence[str], capability: Sequence[int]) -> bool:
    """Whether code of one of these kinds runs on a card.

    Machine code (`sm_90`) runs on cards of the same major number that are not older; `compute_90` is compiled anew for
    any younger card (CUDA's programming guide, binary and PTX compatibility). Code with a letter (`sm_90a`) runs on
    that card alone.
    """
    major, minor = capability
    for kernel in kernels:
        kind, _, number = kernel.partition("_")
        digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdigit():
            continue
        built = divmod(int(digits), 10)
        if number != digits:
            fits = built == (major, minor)
        elif kind == "sm":
            fits = built[0] == major and built[1] <= minor
        else:
            fits = built <= (major, minor)
        if fits:
            return True
    return False


CHECK = Check(
    _ID,
    "the serving environment's torch sees the needed GPUs and has kernels for them",
    _run,
    tuple(name for name in NEEDS if name != _ID),
    ("sweep",),
    tier=Tier.LOAD,
)
