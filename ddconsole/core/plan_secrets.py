"""Secrets by their names and by their looks: a plan is stored, shown and published, so none may stand in it."""

import re

from ddconsole.core.sweep import EngineArgument

_SECRET_NAME = re.compile(
    r"(^|[-_.])(token|secret|password|passwd|api[-_]?key|access[-_]?key|secret[-_]?key|private[-_]?key|credentials?)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI and others after it
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"  # GitHub
    r"|\bAKIA[0-9A-Z]{16}\b"  # Amazon
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|://[^/\s:@]+:[^/\s:@]+@"  # a password inside a URL
    r"|\bBearer\s+[A-Za-z0-9._~+/-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def secret_reason(name: str, value: EngineArgument) -> str | None:
    """Why a named value looks like a secret, without the value itself; None where it does not."""
    if _SECRET_NAME.search(name) and not isinstance(value, bool):
        return f"{name} names a secret"
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(one, str) and _SECRET_VALUE.search(one) for one in values):
        return "the value looks like a secret"
    return None
