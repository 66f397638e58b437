"""How fast a method will be where it has not been measured yet: by what it gained elsewhere, and by others there.

The logarithm of a stream's rate is taken for a sum: what the defaults say, what the whole run adds, the method, the
tensor-parallel size and the workload point. The parts are fitted one after the other to what the others leave, over and
over (backfitting: Friedman and Stuetzle, JASA 76, 1981), each drawn towards what is assumed without a measurement, so
that one odd cell does not carry the forecast.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

_TURNS = 6
_DRAWN = 0.25
"""Measurements that the assumption counts as."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Seen:
    """One measurement: the logarithm of the factor by which it was beyond the defaults."""

    method: str
    gain: float
    """The factor that its speculation is taken to gain before it was measured; 1 for a baseline."""
    size: int
    place: Hashable
    """The workload point."""
    beyond: float


@dataclass(frozen=True, slots=True)
class Pace:
    """The fitted parts, logarithms all of them."""

    speculative: float = 0.0
    """What speculation gained beyond what was taken, on the mean of its methods."""
    whole: float = 0.0
    methods: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[int, float] = field(default_factory=dict)
    places: Mapping[Hashable, float] = field(default_factory=dict)

    def beyond(self, method: str, size: int, place: Hashable, gain: float) -> float:
        """The logarithm of the factor by which a rate is expected to be beyond the defaults.

        Args:
            method: by name.
            size: tensor-parallel.
            place: the workload point.
            gain: the factor that its speculation is taken to gain; 1 for a baseline.
        """
        unseen = math.log(gain) + (self.speculative if gain != 1.0 else 0.0)
        gain = self.methods.get(method, unseen)
        return self.whole + gain + self.sizes.get(size, 0.0) + self.places.get(place, 0.0)


def fit_pace(seen: Sequence[Seen]) -> Pace:
    """Fit the parts; nothing seen gives the defaults."""
    if not seen:
        return Pace()
    taken = {one.method: math.log(one.gain) for one in seen}
    methods, more = dict(taken), 0.0
    sizes: dict[int, float] = dict.fromkeys((one.size for one in seen), 0.0)
    places: dict[Hashable, float] = dict.fromkeys((one.place for one in seen), 0.0)
    whole = 0.0
    for _ in range(_TURNS):
        rest = [one.beyond - methods[one.method] - sizes[one.size] - places[one.place] for one in seen]
        whole = math.fsum(rest) / len(rest)
        rest = [one.beyond - whole - sizes[one.size] - places[one.place] for one in seen]
        assumed = {method: log + (more if log else 0.0) for method, log in taken.items()}
        methods = _drawn_means([one.method for one in seen], rest, assumed)
        beyond = [methods[method] - log for method, log in taken.items() if log]
        more = math.fsum(beyond) / len(beyond) if beyond else 0.0
        rest = [one.beyond - whole - methods[one.method] - places[one.place] for one in seen]
        sizes = _drawn_means([one.size for one in seen], rest, dict.fromkeys(sizes, 0.0))
        rest = [one.beyond - whole - methods[one.method] - sizes[one.size] for one in seen]
        places = _drawn_means([one.place for one in seen], rest, dict.fromkeys(places, 0.0))
    return Pace(more, whole, methods, sizes, places)


def _drawn_means(keys: Sequence[_Key], values: Sequence[float], assumed: Mapping[_Key, float]) -> dict[_Key, float]:
    """The mean of the values of each key, drawn towards what is assumed of it."""
    found: dict[_Key, list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        found.setdefault(key, []).append(value)
    return {key: (math.fsum(own) + _DRAWN * assumed[key]) / (len(own) + _DRAWN) for key, own in found.items()}
