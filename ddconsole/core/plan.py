"""The plan: what an operator writes, checked. See design.md's words; the YAML around it is `ddconsole.planfile`'s."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ddconsole.core.placement import default_placement
from ddconsole.core.plan_checks import faults_of
from ddconsole.core.plan_parts import (
    AgentPart,
    DisplacePart,
    EnginePart,
    ExpectPart,
    MethodEntry,
    ModelPart,
    PlacementEntry,
    PlacementPart,
    ProtocolPart,
    ProxmoxPart,
    SamplingPart,
    SkipEntry,
)
from ddconsole.core.plan_problem import field_name
from ddconsole.core.plan_values import HostName, Id, ListOf, OneOrMany, ParallelSize, PlanPart, Text
from ddconsole.core.plan_workloads import Workload
from ddconsole.core.sweep import Placement

FAULTS = "plan_faults"
"""Type of the pydantic error that carries `PlanFault`s in its context."""


class Plan(PlanPart):
    """Host, engine, model, methods, tensor-parallel sizes, workloads, protocol.

    Raises:
        pydantic.ValidationError: it is no possible plan; `ddconsole.planfile.plan_file` turns that into `PlanError`.
    """

    name: Id
    host: HostName
    model: ModelPart
    engine: EnginePart
    methods: Mapping[Id, MethodEntry]
    baseline: Id
    tensor_parallel: Annotated[tuple[ParallelSize, ...], OneOrMany] = (1,)
    workloads: Mapping[Id, Workload]
    sampling: SamplingPart = Field(default_factory=SamplingPart)
    placement: PlacementEntry = Field(default_factory=PlacementPart)
    protocol: ProtocolPart = Field(default_factory=ProtocolPart)
    notify: Annotated[tuple[Text, ...], ListOf] = ()
    """A command of the operator's, as a list; it gets the message as its last argument."""
    skip: Annotated[tuple[SkipEntry, ...], ListOf] = ()
    displace: Annotated[tuple[DisplacePart, ...], ListOf] = ()
    expect: ExpectPart = Field(default_factory=ExpectPart)
    agent: AgentPart = Field(default_factory=AgentPart)
    proxmox: ProxmoxPart | None = None

    @model_validator(mode="after")
    def _as_a_whole(self) -> "Plan":
        faults = faults_of(self)
        if faults:
            text = "; ".join(f"{field_name(one.path)}: {one.text}" for one in faults)
            raise PydanticCustomError(FAULTS, "{text}", {"text": text, "faults": faults})
        return self

    def placement_of(self, tensor_parallel: int) -> Placement:
        """The GPUs of a tensor-parallel size: as the plan says, else the first ones; none for `placement: none`."""
        if not self.placement.used:
            return Placement()
        gpus = self.placement.gpus.get(tensor_parallel)
        if gpus is None:
            return default_placement(tensor_parallel, self.placement.bind)
        return Placement(gpus, self.placement.bind)
