"""`ddconsole prepare HOST`: bring the agent to a host beforehand: a later start needs nothing but the link."""

import argparse
import asyncio
import sys
from dataclasses import asdict

from ddconsole.commands.asking import prompts_of_terminal
from ddconsole.commands.connection import EXPECTED, UsageProblem, fail, printed
from ddconsole.commands.host_choices import HostChoice, host_choice
from ddconsole.core.visible_text import visible_line

_MB = 1e6


def main(options: argparse.Namespace) -> int:
    """Prepare, and say what was done; the exit status."""
    try:
        asyncio.run(_prepare(options))
    except EXPECTED as problem:
        return fail(problem)
    return 0


async def _prepare(options: argparse.Namespace) -> None:
    host = options.host
    if host == "local":
        raise UsageProblem("this machine needs no preparing: ddconsole is installed here")
    # asyncssh takes a third of a second to import: only a host over SSH pays for it.
    from ddconsole.link.deploy import HostAgent  # noqa: PLC0415
    from ddconsole.link.places import default_cache_directory  # noqa: PLC0415
    from ddconsole.link.prepare import prepare_host  # noqa: PLC0415

    choice = host_choice(host, HostChoice(options.python or "", options.state or ""))
    done = await prepare_host(
        host,
        HostAgent(**asdict(choice)),
        prompts=prompts_of_terminal(),
        on_stage=lambda stage: print(f"{host}: {stage.value} …", file=sys.stderr),
    )
    bundle, python = done.brought.bundle, done.brought.python
    told = {
        "host": host,
        "python": python.path,
        "version": ".".join(map(str, python.version)),
        "bundle": bundle.name,
        "folder": done.brought.folder,
        "uploaded": done.brought.uploaded,
        "packed_bytes": bundle.size,
        "unpacked_bytes": bundle.unpacked,
        "sha256": bundle.sha256,
        "removed": list(done.removed),
        "cache": str(default_cache_directory()),
    }
    if options.json:
        printed(told)
        return
    how = f"uploaded, {bundle.size / _MB:.1f} MB" if done.brought.uploaded else "was there already"
    lines = [
        f"Python {told['version']} at {python.path} ({python.machine}, {' '.join(python.libc) or 'another C library'})",
        f"bundle {bundle.name}: {how}; {bundle.unpacked / _MB:.1f} MB in {done.brought.folder}; its hash is right",
        *([f"older bundles removed: {', '.join(done.removed)}"] if done.removed else []),
        f"nothing was started; a start from here needs no package index (kept in {told['cache']})",
    ]
    for line in lines:
        print(visible_line(f"{host}: {line}"))
