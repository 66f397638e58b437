"""Bringing model and draft to where the plan wants them: by the agent, so that a lost link does not end it."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddconsole.agent.stage_copy import StageProblem, StageStopped, copy_file, hash_file, source_files
from ddconsole.agent.stage_fetch import (
    Fetch,
    begin_fetch,
    bytes_there,
    end_fetch,
    operators_fetch,
    put_in_place,
    ssh_fetch,
)
from ddconsole.core.clock import Clock
from ddconsole.core.wire import StageStatus, Submission
from ddconsole.preflight.cgroup import memory_limit
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.manifest import (
    Manifest,
    ManifestFile,
    manifest_file,
    manifest_from_json,
    manifest_to_json,
    sample_of_file,
)
from ddconsole.preflight.model_files import examine_model
from ddconsole.preflight.mounts import mount_of
from ddconsole.runner.durable import write_json

_ROOM_BESIDE = 1 << 30
"""Bytes of memory that must be left when a model stands in tmpfs: the agent and the copy need some."""
_LOOK = 0.5
"""Seconds between two looks at what an operator's command has brought."""
RUNNING = frozenset({"looking", "copying", "checking"})


class Staging:
    """One staging at a time, with its state for whoever asks.

    Args:
        manifests: folder of manifests.
        boot: the boot token.
        clock: for the times of manifests.
    """

    def __init__(self, manifests: Path, boot: str, clock: Clock) -> None:
        self._manifests = manifests
        self._boot = boot
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self.status = StageStatus()

    @property
    def running(self) -> bool:
        """Whether something is being staged."""
        return self._task is not None and not self._task.done()

    def begin(self, submission: Submission, *, forget: bool = False) -> StageStatus:
        """Begin; while one runs, it goes on and this changes nothing.

        Args:
            submission: model, drafts and source.
            forget: take the source's word where a manifest says otherwise.

        Raises:
            StageProblem: there is nothing to stage, or nowhere to take it from.
        """
        if self.running:
            return self.status
        if submission.rehearsal is not None:
            raise StageProblem("a simulated host stages nothing", "use the real plan")
        source = submission.model.get("source")
        if not source:
            raise StageProblem("the plan does not say where the model comes from", "add `model: source:` to it")
        drafts = [one["speculative"].get("draft_model") for one in submission.deployments if one.get("speculative")]
        named = [submission.model.get("path"), submission.model.get("draft"), *drafts]
        paths = [str(path) for path in dict.fromkeys(named) if path]
        self._stop.clear()
        self.status = StageStatus(phase="looking", began=self._clock.now())
        self._task = asyncio.create_task(self._run(paths, source, forget=forget), name="staging")
        return self.status

    async def stop(self) -> None:
        """Stop it; what was copied is kept for the next time."""
        self._stop.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, paths: Sequence[str], source: str | Sequence[str], *, forget: bool) -> None:
        try:
            for path in paths:
                await self._stage(path, source, forget=forget)
            self._say(phase="done", file="", ended=self._clock.now())
        except StageStopped:
            self._say(phase="stopped", problem="stopped; what was copied is kept", do="stage again to go on")
        except StageProblem as problem:
            self._say(phase="failed", problem=problem.text, do=problem.do)
        except OSError as problem:
            text = f"{problem.filename or 'a file'}: {problem.strerror or problem}"
            self._say(phase="failed", problem=text, do="look at it on the host, then stage again")

    def _say(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]  # fields of StageStatus

    async def _stage(self, path: str, source: str | Sequence[str], *, forget: bool) -> None:
        known = None if forget else self._manifest(path)
        self._say(phase="looking", what=path, file="", done=0, total=0)
        if isinstance(source, str) and ":" not in source:
            hashes = await self._from_folder(path, Path(source), known)
        else:
            hashes = await self._fetched(path, source, known)
        report = await examine_model(LocalMachine(), path)
        if report.problems:
            text = f"it was staged and is not whole: {report.problems[0]}"
            raise StageProblem(text, "the source itself is not whole: look at it there")
        self._write_manifest(path, hashes)

    async def _from_folder(self, path: str, source: Path, known: Manifest | None) -> dict[str, str]:
        origin = source / Path(path).name
        origin = origin if origin.exists() else source
        files = await asyncio.to_thread(source_files, origin)
        if not files:
            raise StageProblem(f"there is nothing in {origin}", "correct the plan's `model: source:`")
        target = Path(path)
        if target.resolve() == origin.resolve():
            raise StageProblem(f"{path} is its own source", "name another place in the plan's `model: path:`")
        sizes = {name: one.stat().st_size for name, one in files.items()}
        await self._require_room(path, sum(sizes.values()) - bytes_there(target))
        self._say(phase="copying", total=sum(sizes.values()))
        hashes: dict[str, str] = {}
        before = 0
        for name, one in files.items():
            to = target if origin.is_file() else target / name
            self._say(file=name)
            hashes[name] = await asyncio.to_thread(self._bring, one, to, name, known, before)
            before += sizes[name]
        return hashes

    def _bring(self, source: Path, to: Path, name: str, known: Manifest | None, before: int) -> str:
        """Copy one file, unless the good copy of it is there already. Runs in a thread."""
        good = known.files.get(name) if known else None

        def report(there: int) -> None:
            self._say(done=before + there)

        if good is not None and good.sha256 and to.is_file() and to.stat().st_size == good.size:
            if hash_file(to, report, self._stop) == good.sha256:
                return good.sha256
            to.unlink()
        return copy_file(source, to, good.sha256 if good else "", report, self._stop)[1]

    async def _fetched(self, path: str, source: str | Sequence[str], known: Manifest | None) -> dict[str, str]:
        """Let a program bring it; how far it is, is seen by what stands there."""
        good = await self._good_files(Path(path), known)
        if known is not None and known.files and good.keys() == known.files.keys():
            return good
        if isinstance(source, str):
            fetch = await ssh_fetch(path, source)
        else:
            fetch = operators_fetch(path, source, known.bytes if known else 0)
        await self._require_room(path, fetch.expected - bytes_there(fetch.to, fetch.part))
        self._say(phase="copying", file=fetch.argv[0], total=fetch.expected)
        process = await begin_fetch(fetch)
        ended = asyncio.create_task(process.communicate())
        try:
            await self._watch(fetch, ended)
        except (StageStopped, StageProblem):
            await end_fetch(process)
            raise
        _, complaint = ended.result()
        if process.returncode != 0:
            last = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
            text = f"{fetch.argv[0]} ended with {process.returncode}: {''.join(last)[-300:] or 'it said nothing'}"
            raise StageProblem(text, "run it by hand on the host; what it brought is kept")
        await asyncio.to_thread(put_in_place, fetch)
        return await self._hashes(Path(path), known)

    async def _watch(self, fetch: Fetch, ended: "asyncio.Task[tuple[bytes, bytes]]") -> None:
        """Tell how far it is until it has ended, with an eye on the room: nobody knows how much a command brings.

        Raises:
            StageStopped: somebody stopped it.
            StageProblem: there is no room for more.
        """
        while not ended.done():
            await asyncio.wait({ended}, timeout=_LOOK)
            self._say(done=await asyncio.to_thread(bytes_there, fetch.to, fetch.part))
            if self._stop.is_set():
                raise StageStopped
            if not ended.done():
                await self._require_room(str(fetch.to), 1)

    async def _good_files(self, target: Path, known: Manifest | None) -> dict[str, str]:
        """The files that are there as the first good copy had them; what has its size and not its bytes is removed."""
        good: dict[str, str] = {}
        for name, one in known.files.items() if known else ():
            place = target if target.is_file() else target / name
            if not one.sha256 or not place.is_file() or place.stat().st_size != one.size:
                continue
            self._say(file=name)
            if await asyncio.to_thread(hash_file, place, lambda _: None, self._stop) == one.sha256:
                good[name] = one.sha256
            else:
                place.unlink()
        return good

    async def _hashes(self, target: Path, known: Manifest | None) -> dict[str, str]:
        """Hash what a command brought, and compare it with the first good copy."""
        files = await asyncio.to_thread(source_files, target)
        self._say(phase="checking", done=0, total=sum(one.stat().st_size for one in files.values()))
        hashes: dict[str, str] = {}
        before = 0
        for name, one in files.items():
            self._say(file=name)

            def report(there: int, before: int = before) -> None:
                self._say(done=before + there)

            hashes[name] = await asyncio.to_thread(hash_file, one, report, self._stop)
            before += one.stat().st_size
            good = known.files.get(name) if known else None
            if good is not None and good.sha256 and good.sha256 != hashes[name]:
                text = f"{one} has not the hash of the first good copy: {hashes[name][:12]}, not {good.sha256[:12]}"
                raise StageProblem(text, "find out which one is right; `--forget` takes the source's word")
        return hashes

    async def _require_room(self, path: str, needed: int) -> None:
        """Free space, and for tmpfs what the container's memory limit leaves: both before the first byte."""
        machine = LocalMachine()
        room = await machine.disk_room(path)
        if not room.writable:
            raise StageProblem(f"{room.path} cannot be written", "give this user the right, or take another place")
        if room.free_bytes < needed:
            text = f"{_gib(needed)} are needed and {_gib(room.free_bytes)} are free in {room.path}"
            raise StageProblem(text, "make room there, or a larger tmpfs (`mount -o remount,size=...`)")
        mount = await mount_of(machine, room.path)
        limit = await memory_limit(machine)
        if mount is None or not mount.in_memory or limit is None or limit.left >= needed + _ROOM_BESIDE:
            return
        text = (
            f"{path} stands in memory: {_gib(needed)} are needed, and the limit leaves {_gib(limit.left)} of "
            f"{_gib(limit.limit)} ({limit.source}; tmpfs counts to it)"
        )
        raise StageProblem(text, "raise the container's memory limit, or stage to a disk")

    def _manifest(self, path: str) -> Manifest | None:
        try:
            return manifest_from_json(json.loads(Path(manifest_file(str(self._manifests), path)).read_bytes()))
        except (OSError, ValueError):
            return None

    def _write_manifest(self, path: str, hashes: dict[str, str]) -> None:
        target = Path(path)
        places = {name: target if target.is_file() else target / name for name in hashes}
        sizes = {name: place.stat().st_size for name, place in places.items()}
        files = {
            name: ManifestFile(sizes[name], sample_of_file(place, sizes[name]), hashes[name])
            for name, place in places.items()
        }
        self._manifests.mkdir(parents=True, exist_ok=True)
        manifest = Manifest(path, self._clock.now(), self._boot, files)
        write_json(Path(manifest_file(str(self._manifests), path)), manifest_to_json(manifest))


def _gib(number: int) -> str:
    return f"{max(number, 0) / 1024**3:.1f} GiB"
