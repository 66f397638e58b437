"""What a server says went wrong, out of the shapes in which the engines put it."""

import json
from typing import Any

from ddconsole.core.visible_text import visible

LONGEST_ERROR = 2000
"""Characters of an error that are kept."""


def error_of(body: Any) -> str | None:
    """The message of an error object, None where `body` holds no error.

    Shapes seen: `{"error": {"message", "code"}}` (vLLM, llama.cpp, SGLang in streams), `{"error": "text"}`,
    `{"object": "error", "message"}` (SGLang), `{"detail": "text"}` (404 of FastAPI, only with a status).
    """
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if error is None and body.get("object") == "error":
        error = body
    if error is None or error is False:
        return None
    if not isinstance(error, dict):
        return _shown(error)
    message = error.get("message")
    text = _shown(message if message not in (None, "") else error)
    code = error.get("code")
    return f"{text} (code {_shown(code)})" if code is not None else text


def error_of_answer(status: int, text: str) -> str:
    """What to say of an answer whose status is not 200."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    told = error_of(body)
    if told is None and isinstance(body, dict) and "detail" in body:
        told = _shown(body["detail"])
    return f"HTTP {status}: {told if told is not None else _shown(text.strip() or 'no text in the answer')}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return visible(text, LONGEST_ERROR)
