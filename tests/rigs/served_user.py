"""An inference engine that another user of this machine can start: the tiny model and llama.cpp's server, copied."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
SYSTEM_PYTHON = "/usr/bin/python3"
"""Debian's own: the one that every user of the machine can run."""


@dataclass(frozen=True)
class CopiedEngine:
    """What a plan's `engine` and `model` need."""

    command: tuple[str, ...]
    environment: dict[str, str]
    model: str


@contextmanager
def copied_engine(model: Path = MODELS / "tinypy.gguf") -> Iterator[CopiedEngine]:
    """Copy engine and model where everybody may read them."""
    spec = find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    with tempfile.TemporaryDirectory(prefix="ddconsole-engine-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in package.parent.glob("xllamacpp*"):
            if part.is_dir():
                shutil.copytree(part, folder / part.name)
        server = find_spec("ddconsole.engines.xllamacpp_server")
        assert server is not None
        assert server.origin is not None
        program = folder / "bin" / "llama_server.py"
        program.parent.mkdir()
        shutil.copy(server.origin, program)
        shutil.copy(model, folder / model.name)
        yield CopiedEngine((SYSTEM_PYTHON, str(program)), {"PYTHONPATH": str(folder)}, str(folder / model.name))
