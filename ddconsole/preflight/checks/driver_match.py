"""The driver's kernel module and its libraries are of the same version."""

import json
import re

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown
from ddconsole.preflight.facts import Facts

MODULE_FILE = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_SUFFIX = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_DEADLINE = 8.0
_REMEDY = (
    "install the user-space driver of exactly the module's version (in a container: the same .run with "
    "--no-kernel-module) and hold its packages on host and container; servers that run go on, the next start may fail"
)


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    module, complaint = await _module_version(facts)
    found = {f"kernel module ({MODULE_FILE})": module} if module else {}
    evidence = [f"{MODULE_FILE}: {module or complaint}"]
    missing: list[str] = []
    await _library_versions(facts, found, evidence, missing)
    if facts.host is not None and facts.host.driver.value is not None:
        found["NVML"] = facts.host.driver.value
        evidence.append(f"{facts.host.driver.source}: {facts.host.driver.value}")
    return _judge(facts, found, evidence, missing)


def _judge(facts: Facts, found: dict[str, str], evidence: list[str], missing: list[str]) -> Verdict:
    expected = "one version everywhere"
    nvml_problem = (facts.host.gpu_count.unavailable if facts.host else None) or ""
    if missing and not found:
        return failed("no driver: neither kernel module nor libraries", expected, "install the NVIDIA driver", evidence)
    if missing:
        return failed(f"{', '.join(missing)} cannot be loaded", expected, _REMEDY, evidence)
    versions = sorted(set(found.values()))
    if len(versions) > 1 or "NVML 18" in nvml_problem:
        observed = ", ".join(f"{where.partition(' (')[0]} {version}" for where, version in found.items())
        return failed(
            observed or nvml_problem, expected, _REMEDY, [*evidence, *([nvml_problem] if nvml_problem else [])]
        )
    if len(found) < 2:
        return unknown("fewer than two versions could be read, so there is nothing to compare", "", evidence)
    return passed(f"{versions[0]} ({len(found)} places)", expected, evidence)


async def _module_version(facts: Facts) -> tuple[str, str]:
    try:
        text = await facts.machine.read_text(MODULE_FILE)
    except OSError as problem:
        return "", problem.strerror or str(problem)
    match = _VERSION.search(text)
    return (match[1], "") if match else ("", f"no version in {text[:80]!r}")


async def _library_versions(facts: Facts, found: dict[str, str], evidence: list[str], missing: list[str]) -> None:
    """What the loader takes, in a child: the file's name ends with the version."""
    ran = await facts.machine.child("libraries", deadline=_DEADLINE)
    if ran.exit_code != 0:
        evidence.append(f"loading the libraries in a child: exit {ran.exit_code} {ran.err.strip()[-120:]}")
        return
    for name, answer in json.loads(ran.out).items():
        if answer["file"] is None:
            evidence.append(f"{name}: {answer['error'] or 'loaded from an unknown file'}")
            if answer["error"]:
                missing.append(name)
            continue
        evidence.append(f"{name}: {answer['file']}")
        if match := _SUFFIX.search(answer["file"]):
            found[name] = match[1]


CHECK = Check("driver.match", "the driver's kernel module and libraries belong together", _run, deadline=12.0)
