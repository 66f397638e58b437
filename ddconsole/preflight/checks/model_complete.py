"""The model and its drafts are where the plan says, and whole."""

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.model_files import examine_model

_MEMORY_FOLDERS = ("/dev/shm/", "/run/", "/tmp/")  # noqa: S108  # read only, and named in a remedy


async def _run(facts: Facts) -> Verdict:
    paths = [("model", facts.plan.model), *(("draft", path) for path in facts.plan.drafts)]
    paths = [(role, path) for role, path in paths if path]
    if not paths:
        return skipped("the plan names no model")
    problems: list[str] = []
    unsure: list[str] = []
    evidence: list[str] = []
    wrong = ""
    for role, path in paths:
        report = await examine_model(facts.machine, path)
        problems.extend(f"{role}: {line}" for line in report.problems)
        unsure.extend(f"{role}: {line}" for line in report.unsure)
        evidence.append(f"{role} {path}: {report.summary()}")
        wrong = wrong or (path if report.problems else "")
    expected = "every file there, each as long as its header says"
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return failed(problems[0] + more, expected, _remedy(facts, wrong), [*problems[1:], *evidence], wrong)
    if unsure:
        return unknown(unsure[0], "", [*unsure[1:], *evidence])
    return passed(" · ".join(evidence), expected, evidence)


def _remedy(facts: Facts, path: str) -> str:
    source = f" from {facts.plan.model_source}" if facts.plan.model_source else ""
    gone = (
        "; what stood in memory there is gone after a start of the machine or container"
        if path.startswith(_MEMORY_FOLDERS)
        else ""
    )
    return f"stage it again{source}: `ddconsole stage PLAN`{gone}"


CHECK = Check("model.complete", "model and draft are there and whole", _run, deadline=60.0)
