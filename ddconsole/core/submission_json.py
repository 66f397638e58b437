"""A submission from its JSON: as a console sends it, and as the run directory keeps it."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ddconsole.core.wire import Submission


def submission_from_json(data: Any) -> Submission:
    """A submission from parsed JSON.

    Raises:
        ValueError: fields are missing or of another type (`pydantic.ValidationError`).
    """
    return _adapter().validate_python(data)


@cache
def _adapter() -> TypeAdapter[Submission]:
    return TypeAdapter(Submission)
