"""Recorded logs and endpoint answers, and a server that answers from them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.sweep import Deployment, EngineArgument, Placement, Sampling, Speculative, WorkloadPoint
from ddconsole.engines.engine import Answer, ServerStart

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "engines"

Start = Callable[..., ServerStart]


class RecordedApi:
    """A `ServerApi` over recorded answers: a list is answered entry by entry, its last entry again and again."""

    def __init__(self, answers: Mapping[str, Answer | OSError | list[Answer]]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    async def get(self, path: str, timeout: float = 5.0) -> Answer:  # noqa: ARG002  # the protocol's
        return self._answer(path)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,  # noqa: ARG002  # the protocol's
        timeout: float = 30.0,  # noqa: ARG002  # the protocol's
    ) -> Answer:
        return self._answer(path)

    def _answer(self, path: str) -> Answer:
        self.asked.append(path)
        found = self.answers.get(path, Answer(404, {"detail": "Not Found"}, '{"detail":"Not Found"}'))
        if isinstance(found, OSError):
            raise found
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found


def answer(status: int, text: str) -> Answer:
    try:
        return Answer(status, json.loads(text), text)
    except ValueError:
        return Answer(status, None, text)


@pytest.fixture
def recorded() -> Callable[[str, str], dict[str, Answer]]:
    """Endpoint answers of one recorded run: `recorded("sglang", "spec-dflash")`."""

    def load(engine_kind: str, run: str) -> dict[str, Answer]:
        text = (RECORDINGS / engine_kind / "http.json").read_text(encoding="utf-8")
        runs: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
        return {path: answer(one["status"], one["text"]) for path, one in runs[run].items()}

    return load


@pytest.fixture
def api() -> Callable[[Mapping[str, Any]], RecordedApi]:
    return RecordedApi


@pytest.fixture
def log_lines() -> Callable[[str], list[str]]:
    """The lines of one recorded log: `log_lines("sglang/f-huge.log")`."""

    def load(name: str) -> list[str]:
        return (RECORDINGS / name).read_bytes().decode("utf-8", "replace").split("\n")

    return load


@pytest.fixture
def start() -> Start:
    """A start with the fields that a test cares for."""

    def build(
        args: Mapping[str, EngineArgument] | None = None,
        speculative: Speculative | None = None,
        known: frozenset[str] | None = None,
        served_name: str = "run/l01",
        draft: str | None = None,
        **deployment: Any,
    ) -> ServerStart:
        fields: dict[str, Any] = {
            "tensor_parallel": 1,
            "size": 1,
            "env": {},
            "placement": Placement(),
            **deployment,
        }
        return ServerStart(
            deployment=Deployment(id="d01", method="m", args=dict(args or {}), speculative=speculative, **fields),
            command=("/venv/bin/python", "-m", "sglang.launch_server"),
            model="/models/target",
            draft=draft,
            served_name=served_name,
            port=30007,
            known_flags=known,
        )

    return build


@pytest.fixture
def point() -> Callable[..., WorkloadPoint]:
    def build(kind: str = "single", sampling: Sampling | None = None) -> WorkloadPoint:
        return WorkloadPoint(
            workload="generate",
            kind=kind,
            prompts="five",
            concurrency=1,
            max_tokens=256,
            repetitions=5,
            requests=5,
            sampling=sampling or Sampling(),
        )

    return build
