"""What the agent wants of a runner: the wanted state, not a list of commands, so nothing is lost or done twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ddconsole.core.sweep import Cell, cell_from_json, to_json


class Ending(StrEnum):
    """What the runner does when no cell is wanted any more."""

    WAIT = "wait"
    """Keep the server: more may come."""
    FINISH = "finish"
    """End the server after the cells."""
    NOW = "now"
    """End what runs, and the server."""


@dataclass(frozen=True, slots=True)
class WantedCell:
    """One cell to measure, as this attempt of this round."""

    cell: Cell
    attempt: int
    round: int


@dataclass(frozen=True, slots=True)
class Control:
    """Cells in order, the one that is being measured among them: one that runs and is not wanted is stopped."""

    generation: int
    lease: int
    """Changes while an agent is there; a runner that saw no change for 60 s ends by itself after its cell."""
    cells: tuple[WantedCell, ...]
    ending: Ending
    stopped_by: Mapping[str, str] = field(default_factory=dict)
    """Cell -> who stopped it."""

    def wants(self, cell: str, attempt: int) -> bool:
        """Whether this attempt is wanted."""
        return any(one.cell.id == cell and one.attempt == attempt for one in self.cells)


def control_to_json(control: Control) -> dict[str, Any]:
    """As in `control.json`."""
    return dict(to_json(control))


def control_from_json(data: Mapping[str, Any]) -> Control:
    """The inverse."""
    cells = tuple(WantedCell(cell_from_json(one["cell"]), one["attempt"], one["round"]) for one in data["cells"])
    return Control(
        generation=data["generation"],
        lease=data["lease"],
        cells=cells,
        ending=Ending(data["ending"]),
        stopped_by=dict(data.get("stopped_by", {})),
    )
