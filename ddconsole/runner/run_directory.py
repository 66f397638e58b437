"""Where the parts of a run are: one place that knows the file names."""

from dataclasses import dataclass
from pathlib import Path

LAST_WORDS = "cannot go on:"
"""What the last line of a runner's log begins with, behind time and level, when its storage failed it."""


@dataclass(frozen=True, slots=True)
class LaunchDirectory:
    """`launches/<n>/`. The server runs in it and writes its log there: that is how its processes are known again."""

    path: Path

    @property
    def order(self) -> Path:
        """What the agent ordered, written before the runner starts."""
        return self.path / "launch.json"

    @property
    def control(self) -> Path:
        """The wanted state."""
        return self.path / "control.json"

    @property
    def events(self) -> Path:
        """What the runner says, append-only."""
        return self.path / "events.jsonl"

    @property
    def server_log(self) -> Path:
        """The server's standard output and error, straight from the server."""
        return self.path / "server.log"

    @property
    def runner_log(self) -> Path:
        """The runner's own log."""
        return self.path / "runner.log"

    @property
    def runner(self) -> Path:
        """Identity of the runner process."""
        return self.path / "runner.json"

    @property
    def processes(self) -> Path:
        """Identities of the server's processes, for those who come after the runner."""
        return self.path / "processes.json"

    @property
    def shared_memory(self) -> Path:
        """Files in /dev/shm that the server's processes made, for those who come after the runner."""
        return self.path / "shared-memory.json"

    @property
    def gpu_memory(self) -> Path:
        """What its GPUs held before it began: that is what they must come back to."""
        return self.path / "gpu-memory.json"

    @property
    def handed_environment(self) -> Path:
        """The environment for a runner that systemd starts; its reader removes it."""
        return self.path / "handed-environment.json"

    @property
    def live(self) -> Path:
        """Progress and decode figures: replaced often, never synced, may be lost."""
        return self.path / "live.json"

    @property
    def server_folder(self) -> Path:
        """The server's working folder."""
        return self.path / "server"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`logs/<run>/` or `<state>/runs/<run>/`."""

    path: Path

    @property
    def plan(self) -> Path:
        """The plan as submitted."""
        return self.path / "plan.yaml"

    @property
    def submission(self) -> Path:
        """The whole submission, for an agent that takes the run over."""
        return self.path / "submission.json"

    @property
    def texts(self) -> Path:
        """Prompts and scripts."""
        return self.path / "texts.json"

    @property
    def journal(self) -> Path:
        """The journal: the agent alone writes it."""
        return self.path / "journal.jsonl"

    @property
    def environment(self) -> Path:
        """Driver, topology, versions, effective server arguments."""
        return self.path / "environment.json"

    @property
    def preflight(self) -> Path:
        """The findings before the sweep and before each launch."""
        return self.path / "preflight.json"

    @property
    def debts(self) -> Path:
        """Units that were stopped for the run, with what it takes to put them back."""
        return self.path / "debts.json"

    @property
    def status(self) -> Path:
        """The summary that `ddconsole status --short` shows."""
        return self.path / "status.json"

    def folders(self) -> list[Path]:
        """The folders in which ddconsole writes, this one included."""
        return [self.path, *self.path.glob("cells/*/"), *self.path.glob("launches/*/")]

    def attempt(self, cell: str, attempt: int) -> Path:
        """The file of one attempt."""
        return self.path / "cells" / cell / f"{attempt}.json"

    def launch(self, number: int) -> LaunchDirectory:
        """One launch's folder."""
        return LaunchDirectory(self.path / "launches" / str(number))
