"""Prompt sets and scripts: read from files, handed around as one bundle, so that the host reads no file of ours.

A prompt set is JSON `{"prompts": [{"name", "text"}, ...]}`, a JSON list of texts or of such objects, or JSON Lines of
them. A script is JSON `{"system", "turns": [{"name", "user", "assistant"}, ...]}`. Every text may be a list of lines,
which keeps long ones readable in a diff.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddconsole.core.sweep import to_json
from ddconsole.load.codec import prompt_from_json, script_from_json
from ddconsole.load.task import Prompt, Script, Turn

LARGEST_FILE = 64 * 1024 * 1024
"""Bytes; a larger file is refused."""


class WorkloadTextError(ValueError):
    """A prompt set or script cannot be used. The text names the file, the place and what to do."""


@dataclass(frozen=True, slots=True)
class WorkloadTexts:
    """Prompt sets and scripts by the names under which workloads ask for them."""

    prompts: Mapping[str, tuple[Prompt, ...]] = field(default_factory=dict)
    scripts: Mapping[str, Script] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for a submission."""
        return dict(to_json(self))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "WorkloadTexts":
        """The inverse of `to_json`."""
        return WorkloadTexts(
            prompts={name: tuple(prompt_from_json(one) for one in texts) for name, texts in data["prompts"].items()},
            scripts={name: script_from_json(one) for name, one in data["scripts"].items()},
        )


def read_workload_texts(folder: Path, names: set[str]) -> WorkloadTexts:
    """Read what workloads name.

    Args:
        folder: holds the sets and scripts that are named by a bare name: `five` is `folder/five.json`.
        names: bare names, or paths to JSON or JSON Lines files; a relative path is looked for in `folder` first,
            then in the working folder.

    Raises:
        WorkloadTextError: a file is missing, too large, or not what it should be.
    """
    prompts: dict[str, tuple[Prompt, ...]] = {}
    scripts: dict[str, Script] = {}
    for name in sorted(names):
        path = _path_of(folder, name)
        data = _read(path)
        if isinstance(data, dict) and "turns" in data:
            scripts[name] = _script(path, data)
        else:
            prompts[name] = _prompts(path, data)
    return WorkloadTexts(prompts, scripts)


def _path_of(folder: Path, name: str) -> Path:
    if "/" not in name and not name.endswith((".json", ".jsonl")):
        path = folder / f"{name}.json"
        if not path.is_file():
            there = ", ".join(sorted(one.stem for one in folder.glob("*.json"))) or "none"
            raise WorkloadTextError(f"{path}: no prompt set or script {name!r} → there are: {there}; or give a path")
        return path
    for path in (folder / Path(name).expanduser(), Path(name).expanduser()):
        if path.is_file():
            return path
    raise WorkloadTextError(f"{name}: no such file, neither in {folder} nor in {Path.cwd()}")


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise WorkloadTextError(f"{path}: larger than {LARGEST_FILE // 1024**2} MiB → split it")
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise WorkloadTextError(f"{path}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise WorkloadTextError(f"{path}: byte {problem.start} is not UTF-8 → save it as UTF-8") from problem
    if path.suffix == ".jsonl":
        numbered = enumerate(text.split("\n"), start=1)
        return [_parse(path, line, number) for number, line in numbered if line.strip()]
    return _parse(path, text, 1)


def _parse(path: Path, text: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        line = first_line + problem.lineno - 1
        raise WorkloadTextError(f"{path}:{line}:{problem.colno}: not JSON: {problem.msg}") from problem


def _prompts(path: Path, data: Any) -> tuple[Prompt, ...]:
    entries = data.get("prompts") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not entries:
        raise WorkloadTextError(
            f'{path}: no prompts → a list of texts, or {{"prompts": [...]}}, or {{"turns": [...]}} for a script'
        )
    prompts = tuple(_prompt(path, number, entry) for number, entry in enumerate(entries, start=1))
    _refuse_same_names(path, "prompts", [prompt.name for prompt in prompts])
    return prompts


def _prompt(path: Path, number: int, entry: Any) -> Prompt:
    place = f"prompt {number}"
    if isinstance(entry, str):
        entry = {"text": entry}
    if not isinstance(entry, dict):
        raise WorkloadTextError(f"{path}: {place} is neither a text nor an object with `text`")
    text = entry.get("text", entry.get("prompt"))
    return Prompt(name=_name(path, place, entry, str(number)), text=_text(path, f"{place}, `text`", text))


def _script(path: Path, data: Mapping[str, Any]) -> Script:
    turns = data["turns"]
    if not isinstance(turns, list) or not turns:
        raise WorkloadTextError(f"{path}: `turns` is not a list with at least one turn")
    system = data.get("system", "")
    script = Script(
        name=_name(path, "script", data, path.stem),
        system=_text(path, "`system`", system) if system else "",
        turns=tuple(_turn(path, number, turn) for number, turn in enumerate(turns, start=1)),
    )
    _refuse_same_names(path, "turns", [turn.name for turn in script.turns])
    return script


def _turn(path: Path, number: int, entry: Any) -> Turn:
    place = f"turn {number}"
    if not isinstance(entry, dict):
        raise WorkloadTextError(f"{path}: {place} is not an object with `user` and `assistant`")
    assistant = entry.get("assistant", "")
    return Turn(
        name=_name(path, place, entry, str(number)),
        user=_text(path, f"{place}, `user`", entry.get("user")),
        assistant=_text(path, f"{place}, `assistant`", assistant) if assistant else "",
    )


def _name(path: Path, place: str, entry: Mapping[str, Any], otherwise: str) -> str:
    name = entry.get("name", otherwise)
    if not isinstance(name, str) or not name.strip():
        raise WorkloadTextError(f"{path}: {place} has a `name` that is not a text")
    return name


def _text(path: Path, place: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str) or not value.strip():
        raise WorkloadTextError(f"{path}: {place} is not a text → write a string or a list of lines")
    return value


def _refuse_same_names(path: Path, what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WorkloadTextError(f"{path}: two {what} are named {name!r} → give each its own name")
        seen.add(name)
