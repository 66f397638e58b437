"""YAML read event by event into plain data, with the place of every key and value.

What a plan may hold is a small part of YAML: one document of mappings, lists and scalars. Everything with which a
file can surprise its reader (tags, aliases, merges, keys twice, scalars that versions of YAML read differently) is
refused with its place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from ddconsole.core.plan_problem import PathOfKeys, PlanError, PlanProblem, field_name
from ddconsole.planfile.yaml_scalars import AmbiguousScalarError, Scalar, plain_scalar

LARGEST = 1 << 20
"""Bytes of a plan file."""
DEEPEST = 20
"""Mappings and lists inside each other."""


@dataclass(frozen=True, slots=True)
class Place:
    """Line and column, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class PlacedData:
    """Plain data (dict, list, scalars) and where its parts stand."""

    data: Any
    values: Mapping[PathOfKeys, Place]
    keys: Mapping[PathOfKeys, Place]

    def place_of(self, path: PathOfKeys, *, key: bool = False) -> Place:
        """Where a value (or its key) stands; of one that is not there, the nearest thing around it."""
        first, second = (self.keys, self.values) if key else (self.values, self.keys)
        for length in range(len(path), -1, -1):
            part = path[:length]
            place = first.get(part) or second.get(part)
            if place is not None:
                return place
        return Place(1, 1)


@dataclass(slots=True)
class _Reading:
    """The state of one reading: the file's name for errors, and the places found so far."""

    file: str
    values: dict[PathOfKeys, Place] = field(default_factory=dict)
    keys: dict[PathOfKeys, Place] = field(default_factory=dict)

    def refuse(self, code: str, place: Place, path: PathOfKeys, text: str, do: str = "") -> PlanError:
        return PlanError([PlanProblem(code, self.file, place.line, place.column, field_name(path), text, do)])


def decode_plan(raw: bytes, file: str) -> str:
    """A plan file's bytes as text.

    Raises:
        PlanError: too large, or not UTF-8 text.
    """
    if len(raw) > LARGEST:
        raise PlanError([_sized(len(raw), file)])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        column = problem.start - raw.rfind(b"\n", 0, problem.start)
        text = f"byte 0x{raw[problem.start]:02x} at column {column} is not UTF-8"
        raise PlanError([PlanProblem("E110", file, line, column, "", text, "save the file as UTF-8")]) from problem


def read_yaml(text: str, file: str) -> PlacedData:
    """Read one document.

    Args:
        text: the YAML.
        file: its name, for errors.

    Raises:
        PlanError: it is not YAML, or more than a plan may be.
    """
    size = len(text.encode(errors="surrogatepass"))
    if size > LARGEST:
        raise PlanError([_sized(size, file)])
    reading = _Reading(file)
    _refuse_characters(text, reading)
    events = _events(text, reading)
    root = next(events, None)
    if root is None:
        raise reading.refuse("E110", Place(1, 1), (), "the file is empty", "a plan begins with name: and host:")
    data = _node(root, events, (), reading)
    following = next(events, None)
    if following is not None:
        raise reading.refuse("E110", _place(following), (), "a second document begins here", "one plan a file")
    return PlacedData(data, reading.values, reading.keys)


def _sized(size: int, file: str) -> PlanProblem:
    return PlanProblem("E111", file, 0, 0, "", f"{size:,} bytes, a plan has {LARGEST:,} at most")


def _refuse_characters(text: str, reading: _Reading) -> None:
    """Control characters and lone surrogates, which no editor writes into a plan."""
    for number, line in enumerate(text.split("\n"), start=1):
        for column, character in enumerate(line, start=1):
            code = ord(character)
            if (code < 0x20 and character not in "\t\r") or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
                what = f"control character U+{code:04X} at column {column}"
                raise reading.refuse("E110", Place(number, column), (), what, "remove it")


def _place(event: Event) -> Place:
    mark: StreamMark = event.start_mark
    return Place(mark.line + 1, mark.column + 1)


def _events(text: str, reading: _Reading) -> Iterator[Event]:
    """The node events of all documents; errors of the YAML reader carry their place."""
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, DocumentStartEvent) and (event.version or event.tags):
                raise reading.refuse("E110", _place(event), (), "YAML directives are not allowed", "remove the % lines")
            if isinstance(event, NodeEvent | CollectionEndEvent):
                yield event
    except PlanError:
        raise
    except YAMLError as problem:
        raise _syntax_error(problem, reading) from problem
    except (ValueError, OverflowError, IndexError, AttributeError, AssertionError, NotImplementedError) as problem:
        # ruamel's scanner lets these out for some malformed escapes and tags.
        raise reading.refuse("E110", Place(1, 1), (), f"not YAML: {problem}") from problem


def _syntax_error(problem: YAMLError, reading: _Reading) -> PlanError:
    if isinstance(problem, MarkedYAMLError):
        mark = problem.problem_mark or problem.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        text = " ".join(one for one in (problem.context, problem.problem) if one)
        return reading.refuse("E110", place, (), f"not YAML: {text} at column {place.column}")
    if isinstance(problem, ReaderError):
        return reading.refuse("E110", Place(1, 1), (), f"not YAML: {problem.reason} at character {problem.position}")
    return reading.refuse("E110", Place(1, 1), (), f"not YAML: {problem}")


def _node(event: Event, events: Iterator[Event], path: PathOfKeys, reading: _Reading) -> Any:
    place = _place(event)
    reading.values[path] = place
    if isinstance(event, AliasEvent):
        raise reading.refuse("E111", place, path, f"alias *{event.anchor} is not allowed", "write the value out")
    assert isinstance(event, NodeEvent)
    if event.anchor is not None:
        raise reading.refuse("E111", place, path, f"anchor &{event.anchor} is not allowed", "write the value out")
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise reading.refuse("E110", place, path, f"tag {_tag_text(tag)} is not allowed", "remove it")
    if isinstance(event, ScalarEvent):
        return _scalar(event, path, reading)
    if len(path) >= DEEPEST:
        raise reading.refuse("E111", place, path, f"more than {DEEPEST} levels deep")
    if isinstance(event, SequenceStartEvent):
        return _sequence(events, path, reading)
    assert isinstance(event, MappingStartEvent)
    return _mapping(events, path, reading)


def _tag_text(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _scalar(event: ScalarEvent, path: PathOfKeys, reading: _Reading) -> Scalar:
    if event.style is not None:
        return _quoted(event, path, reading)
    try:
        return plain_scalar(event.value)
    except AmbiguousScalarError as problem:
        name = field_name(path)
        text = f"{name}: {problem.text}" if name else problem.text
        raise reading.refuse("E113", _place(event), path, text, problem.do) from problem


def _quoted(event: ScalarEvent, path: PathOfKeys, reading: _Reading) -> str:
    """The text of a quoted scalar. Escapes can make halves of characters, which no file or socket takes."""
    text = str(event.value)
    half = next((one for one in text if 0xD800 <= ord(one) < 0xE000), None)
    if half is not None:
        what = f"\\u{ord(half):04x} is half of a character"
        raise reading.refuse("E110", _place(event), path, what, "write the character itself")
    return text


def _sequence(events: Iterator[Event], path: PathOfKeys, reading: _Reading) -> list[Any]:
    items: list[Any] = []
    for event in events:
        if isinstance(event, CollectionEndEvent):
            break
        items.append(_node(event, events, (*path, len(items)), reading))
    return items


def _mapping(events: Iterator[Event], path: PathOfKeys, reading: _Reading) -> dict[str | int, Any]:
    values: dict[str | int, Any] = {}
    for event in events:
        if isinstance(event, CollectionEndEvent):
            break
        key = _key(event, path, reading)
        place = _place(event)
        inner = (*path, key)
        before = reading.keys.get(inner)
        if before is not None:
            text = f'key "{key}" already set at line {before.line}'
            raise reading.refuse("E112", place, inner, text, "keep one of the two")
        reading.keys[inner] = place
        value = next(events)
        values[key] = _node(value, events, inner, reading)
    return values


def _key(event: Event, path: PathOfKeys, reading: _Reading) -> str | int:
    place = _place(event)
    if not isinstance(event, ScalarEvent):
        if isinstance(event, AliasEvent):
            raise reading.refuse("E111", place, path, f"alias *{event.anchor} is not allowed", "write the key out")
        raise reading.refuse("E110", place, path, "a list or mapping as a key", "keys are words or whole numbers")
    if event.anchor is not None:
        raise reading.refuse("E111", place, path, f"anchor &{event.anchor} is not allowed", "remove it")
    if event.tag is not None:
        raise reading.refuse("E110", place, path, f"tag {_tag_text(event.tag)} is not allowed", "remove it")
    if event.style is not None:
        return _quoted(event, path, reading)
    try:
        key = plain_scalar(event.value)
    except AmbiguousScalarError as problem:
        raise reading.refuse("E113", place, path, f"the key {problem.text}", problem.do) from problem
    if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
        return key
    shown = event.value or "(nothing)"
    raise reading.refuse("E113", place, path, f"the key {shown} is not a word", f'quote it: "{event.value}"')
