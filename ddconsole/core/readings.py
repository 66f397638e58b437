"""A reading: a value or the reason why there is none, with its time and its source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """One thing read from the machine. Not available is neither zero nor an error.

    Exactly one of `value` and `unavailable` is set; `unavailable` says why, in the source's words.
    """

    value: Value | None
    at: float
    """Wall time of the read, seconds since 1970."""
    source: str
    """The call or file it came from."""
    unavailable: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.unavailable is None):
            raise ValueError("a reading has either a value or the reason why there is none")

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def require(self) -> Value:
        """The value, for callers that have checked `known`.

        Raises:
            ValueError: there is none.
        """
        if self.value is None:
            raise ValueError(f"{self.source}: {self.unavailable}")
        return self.value

    def map(self, change: Callable[[Value], Other]) -> "Reading[Other]":
        """The same reading with its value changed, or still not available."""
        if self.value is None:
            return Reading(None, self.at, self.source, self.unavailable)
        return Reading(change(self.value), self.at, self.source)


def read(value: Value, at: float, source: str) -> Reading[Value]:
    """A reading that has a value."""
    return Reading(value, at, source)


def unavailable(reason: str, at: float, source: str) -> Reading[Value]:
    """A reading that has none, and why."""
    return Reading(None, at, source, reason)
