"""An operator's shell: a home folder with an ssh configuration that names a host, and `ddconsole` in it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from served_user import CopiedEngine
from sshd import Sshd

from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.places import default_cache_directory
from ddconsole.runner.run_directory import RunDirectory

ALIAS = "ct200"
_CHECKOUT = Path(__file__).parents[2]
_CONFIG = """
Host {alias}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {folder}/client_key
  UserKnownHostsFile {home}/known_hosts
"""
_PLAN = """
name: small
host: {host}
model: {{path: {model}}}
engine: {{kind: llamacpp, command: {command}, env: {env}, args: {{threads: 1}}}}
methods: {{ar: {{}}, ngram: {{speculative: {{kind: ngram, draft_tokens: 4}}}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [64, 128], repetitions: 1}}
  concurrency: {{kind: closed-loop, prompts: five, max_tokens: 64, concurrency: 2, requests: 4}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 1, ready_timeout: 60s, stall_timeout: 60s}}
"""
PLANNED = 6
"""Cells of it, three on each of two launches."""


@dataclass
class OperatorsShell:
    """Commands of an operator, and what they leave on the operator's machine."""

    folder: Path
    sshd: Sshd
    user: str
    port: int = 0
    """Of a proxy before the sshd; 0: the sshd's own."""
    before: Sequence[str] = ()
    """A command line that the console's own is appended to, such as one that enters a network namespace."""

    def __post_init__(self) -> None:
        self.runs = self.folder / "runs"
        self.output = self.folder / "output"
        ssh = self.folder / ".ssh"
        for one in (self.runs, ssh):
            one.mkdir(parents=True)
        self.output.touch()
        given = {"alias": ALIAS, "address": self.sshd.address, "port": self.port or self.sshd.port}
        text = _CONFIG.format(**given, user=self.user, folder=self.sshd.folder, home=self.folder)
        (ssh / "config").write_text(text)
        key = (self.sshd.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[{self.sshd.address}]:{self.port or self.sshd.port} {key}")

    def write_plan(self, engine: CopiedEngine, more: str = "") -> str:
        """A plan of a real engine on the host, with more lines; its path."""
        path = self.folder / "plan.yaml"
        given = {"model": engine.model, "command": json.dumps(engine.command), "env": json.dumps(engine.environment)}
        path.write_text(_PLAN.format(host=ALIAS, **given) + more)
        return str(path)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Begin a command; what it says is appended to `output`."""
        argv = [*self.before, sys.executable, "-m", "ddconsole", *arguments]
        nothing = subprocess.DEVNULL
        with self.output.open("ab") as output:
            return subprocess.Popen(
                argv, cwd=_CHECKOUT, env=self.environment, stdin=nothing, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def environment(self) -> dict[str, str]:
        """Of its commands."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "DDCONSOLE_RUNS": str(self.runs),
            # One bundle for all tests.
            "XDG_CACHE_HOME": str(default_cache_directory().parent),
        }

    def said(self) -> str:
        """All that commands have said."""
        return self.output.read_text(errors="replace")

    def mirror(self, run: str) -> RunDirectory:
        """The copy of a run."""
        return RunDirectory(self.runs / run)

    def state(self, run: str) -> RunState:
        """What the copy of the journal comes to."""
        journal = self.mirror(run).journal
        return fold(read_lines(journal.read_bytes())[0] if journal.exists() else ())
