"""The environment of a server: the GPUs of its placement, the plan's variables, and no secret."""

import re
from collections.abc import Mapping

from ddconsole.core.sweep import Deployment
from ddconsole.engines.engine import EngineArgumentError
from ddconsole.engines.flags import holds_secret

_SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|API_?KEYS?|PASSWORD|PASSWD|SECRET|ACCESS_KEY|CREDENTIALS?)$", re.IGNORECASE)


def environment(deployment: Deployment) -> dict[str, str]:
    """What is added to the environment. An empty placement leaves the GPUs alone: a CPU engine.

    CUDA orders GPUs by speed unless told; NVML, and so the placement, by bus address.

    Raises:
        EngineArgumentError: a secret, a variable that the placement sets, or fewer GPUs than ranks.
    """
    _refuse_secrets(deployment.env)
    if "CUDA_VISIBLE_DEVICES" in deployment.env:
        raise EngineArgumentError(
            "env.CUDA_VISIBLE_DEVICES", "the placement decides which GPUs are used", "give them under placement"
        )
    gpus = deployment.placement.gpus
    if not gpus:
        return dict(deployment.env)
    if len(gpus) < deployment.tensor_parallel:
        raise EngineArgumentError(
            f"placement.{deployment.tensor_parallel}",
            f"{len(gpus)} GPUs for tensor parallelism over {deployment.tensor_parallel}",
            "give one GPU for each rank",
        )
    visible = ",".join(str(index) for index in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **deployment.env, "CUDA_VISIBLE_DEVICES": visible}


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def _refuse_secrets(env: Mapping[str, str]) -> None:
    """A plan is copied into the run directory and published with it."""
    for name, value in env.items():
        if is_secret_name(name) or holds_secret(value):
            raise EngineArgumentError(
                f"env.{name}",
                "looks like a secret, and a plan is kept with its results",
                "set it in the environment of the host's agent, and leave it out of the plan",
            )
