"""An attempt as the report keeps it: the figures of its requests, without their chunk times and most of their texts.

A file of twenty-five requests is a hundred kilobytes and a hundred times that as objects: what every figure needs is
taken from a file as soon as it is read, so that runs of thousands of cells fit into memory.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.attempt_file import AttemptFile, acceptance_from_json
from ddconsole.core.figures import (
    Slo,
    end_to_end,
    output_rate,
    summarise,
    time_per_output_token,
    time_to_first_token,
)
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord
from ddconsole.report.comparability import Environment, environment_of
from ddconsole.report.hardware_figures import hardware_figures
from ddconsole.report.result_set import CountedAttempt


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One request with its own figures: rates in tokens a second, times in seconds, None where it is not defined."""

    index: int
    repetition: int
    prompt: str
    turn: int
    outcome: RequestOutcome
    prompt_tokens: int | None
    output_tokens: int | None
    output_rate: float | None
    ttft: float | None
    tpot: float | None
    end_to_end: float | None
    acceptance: Acceptance | None
    text_sha256: str
    text: str = ""
    """Empty where nobody will compare it."""


@dataclass(frozen=True, slots=True)
class ReadAttempt:
    """What an attempt's file said."""

    counted: CountedAttempt
    outcome: str
    simulated: bool
    environment: Environment
    effective: Mapping[str, Any]
    requests: tuple[RequestFigures, ...]

    @property
    def launch(self) -> int:
        """The launch that it ran on."""
        return self.counted.launch


@dataclass(slots=True)
class Reader:
    """Takes what is needed from attempt files; read the baseline's first, so that other texts can be let go."""

    texts: set[str] = field(default_factory=set)
    """SHA-256 of the texts that the baseline gave."""
    _shared: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, file: AttemptFile, *, is_baseline: bool) -> ReadAttempt:
        """Everything but chunk times; texts only of the baseline's variants and of the first one that is none of them.

        Acceptance comes from the engine's counters where no record tells it.
        """
        told = file.figures.get("acceptance")
        acceptance = acceptance_from_json(told) if isinstance(told, Mapping) else None
        environment = environment_of(file)
        return ReadAttempt(
            counted=CountedAttempt(
                number=file.attempt,
                launch=file.launch,
                round=file.round,
                started_at=file.started_at,
                ended_at=file.ended_at,
                summary=summarise(file.requests, acceptance, Slo.from_json(file.slo)),
                flags=file.flags,
                hardware=hardware_figures(file.hardware),
            ),
            outcome=file.outcome,
            simulated=file.simulated,
            environment=Environment(sys.intern(environment.parts), environment.simulated),
            effective=self._shared.setdefault(repr(sorted(file.effective.items())), file.effective),
            requests=tuple(self._requests(file, is_baseline=is_baseline)),
        )

    def _requests(self, file: AttemptFile, *, is_baseline: bool) -> list[RequestFigures]:
        kept: set[tuple[str, str]] = set()
        found = []
        for record in file.requests:
            place = (record.prompt, record.text_sha256)
            if is_baseline:
                keep = place not in kept
                self.texts.add(record.text_sha256)
            else:
                keep = not kept and record.outcome is RequestOutcome.OK and record.text_sha256 not in self.texts
            if keep:
                kept.add(place)
            found.append(_request(record, record.text if keep else ""))
        return found


def read_attempt(file: AttemptFile) -> ReadAttempt:
    """One attempt by itself, with all its texts."""
    return Reader().take(file, is_baseline=True)


def _request(record: RequestRecord, text: str) -> RequestFigures:
    return RequestFigures(
        index=record.index,
        repetition=record.repetition,
        prompt=sys.intern(record.prompt),
        turn=record.turn,
        outcome=record.outcome,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        output_rate=output_rate(record),
        ttft=time_to_first_token(record),
        tpot=time_per_output_token(record),
        end_to_end=end_to_end(record),
        acceptance=record.acceptance,
        text_sha256=sys.intern(record.text_sha256),
        text=text,
    )
