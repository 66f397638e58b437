"""What events carry besides plain values."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Data: TypeAlias = Mapping[str, Any]
"""A JSON object: a deployment, a cell or figures, as `ddconsole.core.sweep.to_json` writes it."""
