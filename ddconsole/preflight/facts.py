"""Everything a check may know: the plan's side as plain values, the machine behind its seam, and one host sample."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.host_state import GpuState, HostState
from ddconsole.core.inventory import Inventory
from ddconsole.core.sweep import Deployment
from ddconsole.engines.engine import Engine
from ddconsole.preflight.load_report import LoadReport
from ddconsole.preflight.machine import Machine


@dataclass(frozen=True, slots=True)
class DisplacedUnit:
    """A systemd unit that holds a GPU the sweep needs (the plan's `displace`)."""

    unit: str
    gpu: int | None
    """None: whatever GPUs the sweep needs."""
    by_sweep: bool = False
    """Whether the sweep itself stops it and starts it again; else the operator has to."""

    def is_on(self, gpu: int) -> bool:
        """Whether it may hold this GPU."""
        return self.gpu is None or self.gpu == gpu


@dataclass(frozen=True, slots=True)
class PreflightPlan:
    """What checks need to know of a plan, or of the part of it that one launch is."""

    run_directory: str
    """On the host; need not exist yet."""
    deployments: tuple[Deployment, ...] = ()
    engine_command: tuple[str, ...] = ()
    """Where the engine is."""
    engine_env: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    """A folder of safetensors, a GGUF file, or a name on a hub."""
    draft: str | None = None
    model_source: str = ""
    """Where the model can be staged from, for the remedy."""
    manifests: str = ""
    """Folder of manifests of good copies, on the host."""
    baseline: str = ""
    expected_gpus: int | None = None
    expected_gpu_name: str = ""
    """Part of the name."""
    bind_numa: bool = False
    """Whether processes are bound to their GPUs' NUMA nodes."""
    expected_link: tuple[int | None, int | None] = (None, None)
    """PCIe generation and width that each GPU should have under load."""
    expected_nodes: int | None = None
    ports: tuple[int, ...] = ()
    """Fixed ports that servers will listen on; free ones taken at launch need no check."""
    displaced: tuple[DisplacedUnit, ...] = ()
    disk_needed_bytes: int = 2 * 1024**3
    """Room for results and logs."""

    @property
    def needed_gpus(self) -> tuple[int, ...]:
        """Indices of all GPUs of all placements."""
        return tuple(sorted({gpu for one in self.deployments for gpu in one.placement.gpus}))

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The placements that have more than one GPU, each once."""
        return tuple(sorted({one.placement.gpus for one in self.deployments if len(one.placement.gpus) > 1}))

    @property
    def drafts(self) -> tuple[str, ...]:
        """Draft models: the plan's, and those of single methods."""
        named = [self.draft, *(one.speculative.draft_model for one in self.deployments if one.speculative)]
        return tuple(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True, slots=True)
class Reach:
    """How the host was reached."""

    how: str = "local"
    """`local`, or `ssh ct200`."""
    problem: str = ""
    """Why it was not, with the stage that failed."""
    remedy: str = ""
    round_trip: float | None = None
    """Seconds."""
    clock_offset: float | None = None
    """Seconds by which the host's clock is ahead of the console's; None where the console did not compare them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one run of the checks goes by."""

    plan: PreflightPlan
    machine: Machine
    host: HostState | None
    """One sample, or None with `host_problem`."""
    host_problem: str = ""
    inventory: Inventory = field(default_factory=lambda: Inventory(problem="the driver was not asked"))
    """Settings and health of the GPUs."""
    look_again: Callable[[], Awaitable[HostState | None]] | None = None
    """One more sample, for what is only wrong when it lasts."""
    engine: Engine | None = None
    """None for an engine that ddconsole does not know: its checks are unknown."""
    known_flags: frozenset[str] | None = None
    """Option strings of this build, where they were asked before: saves the start of a Python with torch in it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the process that starts servers: they inherit it."""
    profile: Mapping[str, Any] | None = None
    """The host as it was recorded when it was good (`ddconsole.preflight.profile`)."""
    build: Mapping[str, Any] | None = None
    """Version and commit of the engine, where it was asked."""
    smoke: Sequence[Mapping[str, Any]] = ()
    """Launches that served tokens: build, how, run."""
    load: LoadReport | None = None
    """What GPUs did under load, where they were put under any."""
    container: int | None = None
    """The container's number on the Proxmox host below it, for the checks that are made there."""
    own_pids: frozenset[int] = frozenset()
    """Processes of this run that may hold GPUs."""
    reach: Reach = field(default_factory=Reach)

    @property
    def simulated(self) -> bool:
        """Whether the machine is a rehearsed one."""
        return self.host is not None and self.host.simulated

    def needed(self) -> list[GpuState]:
        """The GPUs of the plan's placements that the host has."""
        if self.host is None:
            return []
        return [gpu for gpu in self.host.gpus if gpu.index in self.plan.needed_gpus]
