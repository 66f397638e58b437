"""What engine, model and configuration are now: asked before each launch, while nothing is measured.

It costs the start of one interpreter that imports nothing of the engine, and a look at each file's status; files whose
status changed are read again. The build's help takes seconds, and is asked again only for another build.
"""

import asyncio
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddconsole.agent.content_marks import ContentMarks
from ddconsole.core.wire import Submission
from ddconsole.engines.engine import Engine
from ddconsole.engines.environment import is_secret_name

_ASK_DEADLINE = 120.0
"""Real seconds for a command of the engine: SGLang imports for ten seconds and more before it reads its arguments."""
_LIBRARIES = re.compile(r"lib(llama|ggml|mtmd).*\.so")
"""Beside the program, where a build keeps them."""
_MODEL_FILES = frozenset({".safetensors", ".gguf", ".bin", ".json", ".model", ".txt", ".jinja", ".py"})
_CONFIGURATION = (
    "CUDA_", "NCCL_", "SGLANG_", "SGL_", "VLLM_", "LLAMA_", "GGML_", "TORCH_", "PYTORCH_", "TRITON_", "FLASHINFER_",
    "OMP_", "MKL_", "LD_PRELOAD", "LD_LIBRARY_PATH",
)  # fmt: skip
_SET_BY_PLACEMENT = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})

logger = logging.getLogger(__name__)


class EngineWatch:
    """Asks the engine of one run, again and again."""

    def __init__(self, submission: Submission, engine: Engine) -> None:
        self._submission = submission
        self._engine = engine
        self._marks = ContentMarks()
        self._identity: Mapping[str, Any] | None = None
        self._flags: frozenset[str] | None = None
        self._flags_of: object = None
        self._silent: Mapping[str, str] | None = None
        """The files of a build that does not tell what it is."""
        self.asked_seconds = 0.0
        """Real seconds that the last look took."""

    async def look(self) -> Mapping[str, Any]:
        """The identity now (see `ddconsole.core.engine_identity`). A simulated engine does not change."""
        if self._identity is not None and self._submission.rehearsal is not None:
            return self._identity
        began = asyncio.get_running_loop().time()
        files, model = await asyncio.to_thread(self._files)
        # The first time both are asked side by side: with SGLang, help is most of what is waited for.
        build, _ = await asyncio.gather(self._ask_build(files), self._ask_help() if self._flags is None else _nothing())
        packages = build.pop("packages", None)
        self._identity = {
            "build": build,
            "packages": packages if isinstance(packages, dict) else {},
            "files": files,
            "environment": _configuration(os.environ),
            "model": model,
        }
        self._flags_of = self._flags_of or self._build_of(self._identity)
        self.asked_seconds = asyncio.get_running_loop().time() - began
        return self._identity

    async def known_flags(self) -> frozenset[str] | None:
        """Option strings of the build's help; None when it could not be asked."""
        identity = self._identity or await self.look()
        if self._build_of(identity) != self._flags_of:
            await self._ask_help()
            self._flags_of = self._build_of(identity)
        return self._flags

    async def build(self) -> Mapping[str, Any]:
        """Version and commit as they were asked last; empty where the build does not tell."""
        identity = self._identity or await self.look()
        build: Mapping[str, Any] = identity["build"]
        return build

    @staticmethod
    def _build_of(identity: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: identity[name] for name in ("build", "packages", "files")}

    @property
    def _command(self) -> tuple[str, ...]:
        return tuple(self._submission.engine["command"])

    async def _ask_help(self) -> None:
        text = await self._output(self._engine.help_command(self._command))
        self._flags = self._engine.flags_of_help(text) or None if text is not None else None

    async def _ask_build(self, files: Mapping[str, str]) -> dict[str, Any]:
        """What the build tells of itself; one that could not tell is not asked again while its files are the same."""
        command = self._engine.build_command(self._command)
        if command is None or files == self._silent:
            return {}
        told = dict(_told(await self._output(command)))
        self._silent = None if told else files
        return told

    def _files(self) -> tuple[dict[str, str], dict[str, str]]:
        """Marks of the program with what lies beside it, and of the model's files."""
        cwd = Path(self._submission.engine.get("cwd") or ".")
        programs: list[Path] = []
        main = shutil.which(self._command[0])
        if main is not None:
            programs.append(Path(main).resolve())
            beside = programs[0].parent.iterdir()
            programs += sorted(path for path in beside if _LIBRARIES.fullmatch(path.name))
        programs += [cwd / word for word in self._command[1:] if (cwd / word).is_file()]
        model = self._marks.of(_files_of(self._submission.model.get("path")))
        draft = self._marks.of(_files_of(self._submission.model.get("draft")))
        return self._marks.of(programs), {**model, **{f"{name} (draft)": mark for name, mark in draft.items()}}

    async def _output(self, argv: tuple[str, ...]) -> str | None:
        """Standard output and error of a short command of the engine's; None when it cannot be had."""
        env = {key: str(value) for key, value in self._submission.engine.get("env", {}).items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self._submission.engine.get("cwd") or None,
                env={**os.environ, **env},
            )
        except OSError as problem:
            logger.warning("%s: %s", argv[0], problem)
            return None
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _ASK_DEADLINE)
        except TimeoutError:
            process.kill()
            await process.wait()
            return None
        return out.decode(errors="replace") if process.returncode == 0 else None


def _files_of(model: str | None) -> list[Path]:
    """The files of a model: itself, or what lies in its folder; nothing where it is a name on a hub."""
    path = Path(model or "")
    if path.is_file():
        return [path]
    if not model or not path.is_dir():
        return []
    return sorted(one for one in path.iterdir() if one.suffix in _MODEL_FILES)


def _configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that engines and their libraries read, but those that the placement sets and secrets."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_CONFIGURATION) and name not in _SET_BY_PLACEMENT and not is_secret_name(name)
    }


def _told(text: str | None) -> Mapping[str, Any]:
    """The last line that is a JSON object (engines print warnings before it), else the lines that tell a version."""
    lines = (text or "").splitlines()
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    told = [line.strip().removeprefix("version: ") for line in lines if line.startswith(("version: ", "built with "))]
    return {"version": "; ".join(told)[:200]} if told else {}


async def _nothing() -> None:
    return None
