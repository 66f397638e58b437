"""The engines there are. A new one is one module and one line here."""

from ddconsole.engines.engine import Engine
from ddconsole.engines.llamacpp import LlamaCpp
from ddconsole.engines.sglang import Sglang
from ddconsole.engines.vllm import Vllm

_ENGINES: dict[str, Engine] = {
    "sglang": Sglang(),
    "llamacpp": LlamaCpp(),
    "vllm": Vllm(),
}

ENGINE_KINDS = tuple(_ENGINES)
"""What `engine.kind` in a plan can be."""


def engine(kind: str) -> Engine:
    """The ways of one engine.

    Raises:
        KeyError: no engine of that kind; `ENGINE_KINDS` lists them.
    """
    return _ENGINES[kind]
