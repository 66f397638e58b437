"""Which keys a mapping of a plan may have: read off the schema, for the near word of an unknown one."""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from ddconsole.core.plan import Plan
from ddconsole.core.plan_problem import PathOfKeys


def known_keys(path: PathOfKeys, data: Any) -> set[str]:
    """The keys of the mapping at `path`.

    Args:
        path: of the mapping.
        data: the whole plan as plain data, for the kinds of workloads.
    """
    kinds: list[Any] = [Plan]
    for part in path:
        data = _inside(data, part)
        kinds = [inner for kind in kinds for inner in _annotations(kind, part)]
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    named = [model for model in models if _is_of_kind(model, data)]
    return {info.alias or name for model in named or models for name, info in model.model_fields.items()}


def _inside(data: Any, part: str | int) -> Any:
    if isinstance(data, Mapping):
        return data.get(part)
    if isinstance(data, Sequence) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def _annotations(kind: Any, part: str | int) -> Iterator[Any]:
    """The types that the value under `part` may have, with unions and annotations taken apart."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if (info.alias or name) == part:
                yield from _alternatives(info.annotation)
        return
    arguments = get_args(kind)
    if get_origin(kind) is not None and arguments:
        yield from _alternatives(arguments[1] if len(arguments) > 1 and arguments[1] is not Ellipsis else arguments[0])


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _alternatives(one)
    else:
        yield annotation


def _is_of_kind(model: type[BaseModel], data: Any) -> bool:
    info = model.model_fields.get("kind")
    kinds = get_args(info.annotation) if info is not None else ()
    return not kinds or not isinstance(data, Mapping) or data.get("kind") in kinds
