"""The stages of reaching an agent, and the error that names the stage at which it failed."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from ddconsole.link.client import AgentError


class Stage(StrEnum):
    """What is being done, in order."""

    CONNECT = "connect"
    HOST_KEY = "host key"
    AUTH = "auth"
    PYTHON = "python"
    UPLOAD = "upload"
    START = "start"
    HANDSHAKE = "handshake"


StageListener: TypeAlias = Callable[[Stage], None]
"""Told when a stage begins."""


class StageError(AgentError):
    """The agent could not be reached. `stage` says where it ended; nothing was asked of the agent.

    Args:
        stage: where it ended.
        host: as the operator calls it.
        text: what is wrong and where.
        do: what helps.
        final: trying again without a change is pointless: a refused host key, a refused login, no Python.
    """

    def __init__(self, stage: Stage, host: str, text: str, do: str, *, final: bool) -> None:
        super().__init__(f"{host}: {stage}: {text}", do)
        self.stage = stage
        self.host = host
        self.final = final


def nobody_listens(stage: Stage) -> None:
    """A listener for callers that do not show stages."""


class Stages:
    """Tells everybody who asked at which stage a way to an agent is. Itself a `StageListener`."""

    def __init__(self) -> None:
        self._listeners: list[StageListener] = []

    def __call__(self, stage: Stage) -> None:
        """A stage begins."""
        for listener in tuple(self._listeners):
            listener(stage)

    def subscribe(self, listener: StageListener) -> Callable[[], None]:
        """Be told of each stage that begins; the answer ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
