from collections.abc import Sequence
from typing import Any

from ddconsole.core.wire import StageStatus
from ddconsole.link.client import LinkLost
from screens.preflight_text import finding_lines, ordered, outcome_of, summary_line
from screens.spans import Role, plain
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, screen_text, toasts


class Checks:
    def __init__(self, *answers: Sequence[dict[str, Any]] | Exception) -> None:
        self.answers = list(answers)
        self.runs = 0

    async def __call__(self) -> Sequence[dict[str, Any]]:
        self.runs += 1
        answer = self.answers[min(self.runs, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_findings_in_the_way_come_first_with_what_to_do() -> None:
    checks = Checks(ct200.FINDINGS)
    async with opened(ct200.midway(), preflight=checks) as (app, pilot):
        await pressed(pilot, "4")
        lines = screen_lines(app)
        assert checks.runs == 1
        assert "✗ 1 fail" in lines[2]
        assert "1 hold back the launch" in lines[2]
        assert lines[3].startswith("▌✗ fail")
        assert "ask mara" in screen_text(app)
        assert "no server is started while this stands" in screen_text(app)


async def test_the_cursor_shows_another_finding_and_a_key_all_of_it() -> None:
    async with opened(ct200.midway(), preflight=Checks(ct200.FINDINGS)) as (app, pilot):
        await pressed(pilot, "4", "down")
        assert "attention-backend" in screen_text(app)
        await pressed(pilot, "i")
        assert "run it by hand" in screen_text(app)
        await pressed(pilot, "escape", "up", "up")
        assert "memory-free" in screen_text(app)


async def test_a_key_runs_the_checks_again() -> None:
    checks = Checks(ct200.FINDINGS, [{"id": "all", "proves": "all is well", "outcome": "pass", "observed": "yes"}])
    async with opened(ct200.midway(), preflight=checks) as (app, pilot):
        await pressed(pilot, "4", "r")
        assert checks.runs == 2
        assert "nothing holds back the launch" in screen_text(app)


async def test_checks_that_cannot_run_say_why() -> None:
    checks = Checks(LinkLost("ct200: the link ended"), ct200.FINDINGS)
    async with opened(ct200.midway(), preflight=checks) as (app, pilot):
        await pressed(pilot, "4")
        assert "the checks did not run: ct200: the link ended" in screen_text(app)
        await pressed(pilot, "r")
        assert "✗ 1 fail" in screen_text(app)


async def test_a_defect_in_the_checks_takes_nothing_down() -> None:
    async with opened(ct200.midway(), preflight=Checks(RuntimeError("[boom]"))) as (app, pilot):
        await pressed(pilot, "4")
        assert "RuntimeError: [boom]" in toasts(app)
        assert app.is_running


async def test_without_a_plan_there_is_nothing_to_check() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "4")
        assert "not checked yet" in screen_text(app)
        await pressed(pilot, "r")
        assert "opened without a plan" in toasts(app)


def test_what_is_no_outcome_is_unknown_and_never_green() -> None:
    odd = {"id": "x", "outcome": "fine", "proves": None, "observed": ["a", {"b": 1}], "evidence": {"k": "[red]v"}}
    assert outcome_of(odd) == "unknown"
    assert ordered([{"outcome": "pass"}, odd])[0] is odd
    text = "\n".join(plain(one) for one in finding_lines(odd, 60))
    assert "[red]v" in text
    assert Role.GOOD not in {role for one in finding_lines(odd, 60) for _, role in one}
    assert "1 unknown" in plain(summary_line([odd]))


class Desk(Checks):
    """Takes orders, and keeps them."""

    def __init__(self, *stagings: StageStatus) -> None:
        super().__init__(ct200.FINDINGS)
        self.stagings = list(stagings)
        self.accepted: list[tuple[str, str]] = []

    async def accept(self, check: str, because: str) -> Sequence[dict[str, Any]]:
        self.accepted.append((check, because))
        return [one | {"accepted": f"{because} (mara)"} if one["id"] == check else one for one in ct200.FINDINGS]

    async def stage(self) -> StageStatus:
        return self.stagings.pop(0)

    async def staged(self) -> StageStatus:
        return self.stagings.pop(0)


async def test_a_finding_is_accepted_with_a_reason_and_holds_nothing_back() -> None:
    desk = Desk()
    async with opened(ct200.midway(), preflight=desk) as (app, pilot):
        await pressed(pilot, "4", "A")
        await pilot.pause(0.4)
        await pressed(pilot, *"ours", "enter")
        await pilot.pause(0.2)
        assert [because for _, because in desk.accepted] == ["ours"]
        assert "hold back the launch" not in screen_lines(app)[2]
        await pressed(pilot, "i")
        assert "ours (mara)" in screen_text(app)


async def test_a_reason_that_is_not_given_accepts_nothing() -> None:
    desk = Desk()
    async with opened(ct200.midway(), preflight=desk) as (_, pilot):
        await pressed(pilot, "4", "A")
        await pilot.pause(0.4)
        await pressed(pilot, "escape")
        assert desk.accepted == []


async def test_staging_is_asked_about_and_its_trouble_is_said() -> None:
    copying = StageStatus(phase="copying", what="/dev/shm/M", file="m.safetensors", done=1 << 30, total=4 << 30)
    failed = StageStatus(phase="failed", problem="4.0 GiB are needed and 1.0 GiB are free", do="make room there")
    desk = Desk(copying, failed)
    async with opened(ct200.midway(), preflight=desk) as (app, pilot):
        await pressed(pilot, "4", "M")
        await pilot.pause(0.4)
        assert "Bring model and draft to the host?" in screen_text(app)
        await pressed(pilot, "y")
        assert "staging m.safetensors: 1.0 of 4.0 GiB" in screen_text(app)
        await pilot.pause(1.3)
        assert "staging failed: 4.0 GiB are needed" in screen_text(app)


async def test_without_a_desk_nothing_is_accepted_or_staged() -> None:
    async with opened(ct200.midway(), preflight=Checks(ct200.FINDINGS)) as (app, pilot):
        await pressed(pilot, "4", "A", "M")
        assert "nothing can be accepted or staged here" in toasts(app)
