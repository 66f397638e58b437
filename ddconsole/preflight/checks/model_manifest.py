"""Model and draft are the bytes that were staged: by sizes, and hashes of samples of each file."""

import time

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.manifest import Manifest, path_in, read_manifest, sample_of

_EXPECTED = "sizes and samples of the first good copy"


async def _run(facts: Facts) -> Verdict:
    paths = [path for path in (facts.plan.model, *facts.plan.drafts) if path]
    if not facts.plan.manifests or not paths:
        return skipped("the plan names no model" if not paths else "no place for manifests is known")
    found = [(path, await read_manifest(facts.machine, facts.plan.manifests, path)) for path in paths]
    manifests = [(path, one) for path, one in found if one is not None]
    if not manifests:
        return skipped("no good copy was recorded: `ddconsole stage` and `preflight --record` do")
    evidence: list[str] = []
    for path, manifest in manifests:
        evidence.append(f"{path}: {len(manifest.files)} files, {manifest.bytes:,} bytes, {_when(manifest)}")
        problem = await _difference(facts, path, manifest)
        if problem:
            reboot = _rebooted(facts, manifest)
            return failed(problem, _EXPECTED, f"`ddconsole stage` brings it anew{reboot}", evidence, path)
    missing = f"; none recorded of {len(found) - len(manifests)} more" if len(found) > len(manifests) else ""
    return passed(f"as {_when(manifests[0][1])}{missing}", _EXPECTED, evidence)


async def _difference(facts: Facts, path: str, manifest: Manifest) -> str:
    for name, known in manifest.files.items():
        there = path_in(path, name)
        status = await facts.machine.status(there)
        if status is None:
            return f"{there} is not there"
        if status.size != known.size:
            return f"{there} has {status.size:,} bytes, the good copy had {known.size:,}"
        if await sample_of(facts.machine, there, known.size) != known.sample:
            return f"{there} has the right size and other bytes than the good copy"
    return ""


def _when(manifest: Manifest) -> str:
    return f"recorded {time.strftime('%Y-%m-%d %H:%M', time.localtime(manifest.at))}"


def _rebooted(facts: Facts, manifest: Manifest) -> str:
    boot = facts.host.boot_token.value if facts.host else None
    if boot is None or not manifest.boot or boot == manifest.boot:
        return ""
    return "; the machine or container was started anew since it was recorded, which empties tmpfs"


CHECK = Check(
    "model.manifest",
    "model and draft are the bytes of the first good copy",
    _run,
    needs=("host.reachable", "model.complete"),
    deadline=30.0,
)
