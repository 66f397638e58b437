"""What is wrong with a plan: problems with a code, a place, and what to do about them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from ddconsole.core.visible_text import visible_line

CODES: dict[str, str] = {
    "E100": "the plan cannot be read",
    "E101": "not a host",
    "E110": "not the kind of YAML that a plan may be",
    "E111": "too large, too deep, or repeated by reference",
    "E112": "a key twice",
    "E113": "another type than expected",
    "E114": "a key too many, or one that is missing",
    "E201": "not a model",
    "E202": "an engine flag that a plan may not set",
    "E203": "not a name",
    "E210": "not a possible value",
    "E211": "too many cells",
    "E220": "a secret in the plan",
    "E221": "not an environment variable",
}
"""What each code stands for."""

LONGEST_MESSAGE = 500
"""Characters of a problem in one line."""

PathOfKeys = tuple[str | int, ...]
"""Where in the plan: keys of mappings and indices of lists, from the outside in."""


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """One thing that is wrong.

    `line` and `column` count from 1; 0 where the problem has no place. `do` says what helps, and may be empty.
    """

    code: str
    file: str
    line: int
    column: int
    field: str
    text: str
    do: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        do = f" ({self.do})" if self.do else ""
        return visible_line(f"{self.code} {place}: {self.text}{do}", LONGEST_MESSAGE)

    def in_file(self, file: str) -> "PlanProblem":
        """The same problem of a file with another name."""
        return replace(self, file=file)


class PlanError(ValueError):
    """A plan that cannot be used. `problems` holds at least one, in the order of their lines."""

    def __init__(self, problems: Iterable[PlanProblem]) -> None:
        self.problems: Sequence[PlanProblem] = tuple(sorted(problems, key=lambda one: (one.line, one.column)))
        super().__init__("\n".join(str(one) for one in self.problems))


@dataclass(frozen=True, slots=True)
class PlanFault:
    """A problem before it has a place: found in a plan's values, by the path of the value (or of its key)."""

    path: PathOfKeys
    code: str
    text: str
    """Without the field: it is put in front."""
    do: str = ""


def field_name(path: PathOfKeys) -> str:
    """A path as people write it: `workloads.concurrency.max_tokens[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else str(part)
    return text


def near_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    by_folded = {one.lower().replace("-", "_"): one for one in known}
    found = get_close_matches(word.lower().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean concurrency?`, or what there is."""
    names = sorted(known)
    near = near_word(word, names)
    if near is not None:
        return f"did you mean {near}?"
    return f"there is {', '.join(names)}" if names else ""
