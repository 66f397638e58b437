"""This build knows the flags that the plan's deployments are started with."""

from ddconsole.engines.engine import Engine, EngineArgumentError, ServerStart
from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown
from ddconsole.preflight.facts import Facts

_HELP_DEADLINE = 90.0
"""Seconds: some engines import all of torch before they print a line."""
_EXAMPLE_PORT = 30000


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.deployments:
        return skipped("the plan has no deployment")
    if facts.engine is None or not facts.plan.engine_command:
        return unknown("the engine is not one that can be asked for its flags")
    flags = facts.known_flags
    evidence: list[str] = []
    if flags is None:
        argv = facts.engine.help_command(facts.plan.engine_command)
        try:
            ran = await facts.machine.run(argv, _HELP_DEADLINE, facts.plan.engine_env)
        except OSError as problem:
            remedy = "correct the plan's `engine`: the interpreter or program is not there, or may not be run"
            return failed(f"{argv[0]}: {problem.strerror or problem}", "it starts", remedy, [" ".join(argv)], argv[0])
        evidence.append(f"{' '.join(argv)}: exit {ran.exit_code} in {ran.seconds:.1f} s")
        if ran.exit_code is None:
            return unknown(f"its help did not come within {_HELP_DEADLINE:g} s", "try it by hand", evidence)
        flags = facts.engine.flags_of_help(ran.out + "\n" + ran.err)
        if ran.exit_code != 0 and not flags:
            evidence.extend(ran.err.strip().splitlines()[-3:])
            remedy = "run that command by hand: the engine's environment is broken"
            return failed(f"its help ended with {ran.exit_code}", "it prints its help", remedy, evidence)
    if not flags:
        return unknown("its help names no flags", "run it by hand and report its output", evidence)
    return _judge(facts, facts.engine, flags, evidence)


def _judge(facts: Facts, engine: Engine, flags: frozenset[str], evidence: list[str]) -> Verdict:
    expected = f"every flag of {len(facts.plan.deployments)} deployments among the build's {len(flags)}"
    problems: list[tuple[str, EngineArgumentError]] = []
    for deployment in facts.plan.deployments:
        draft = deployment.speculative.draft_model if deployment.speculative else None
        start = ServerStart(
            deployment=deployment,
            command=facts.plan.engine_command,
            model=facts.plan.model,
            draft=draft or facts.plan.draft,
            served_name="preflight",
            port=_EXAMPLE_PORT,
            known_flags=flags,
        )
        try:
            engine.server_command(start)
        except EngineArgumentError as problem:
            problems.append((deployment.id, problem))
    if not problems:
        return passed(f"all known to this build ({len(flags)} flags)", expected, evidence)
    first = problems[0][1]
    lines = [f"{name}: {problem.field}: {problem.text}" for name, problem in problems]
    return failed(lines[0], expected, first.do, [*evidence, *lines], ", ".join(name for name, _ in problems))


CHECK = Check(
    "engine.flags",
    "this build of the engine knows the plan's flags",
    _run,
    blocks=("launch", "sweep"),
    tier=Tier.STANDARD,
    deadline=_HELP_DEADLINE + 5,
)
