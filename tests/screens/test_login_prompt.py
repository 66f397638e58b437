"""Questions of a login inside the console: dots for secrets, a word for a host key, gone when nobody answers."""

import asyncio

import pytest
from waiting import until

from ddconsole.link.prompting import Prompt, Prompts, Unanswered
from screens.app import ConsoleApp
from screens.login_prompt import LoginPromptScreen
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, screen_text, settled

HOST_KEY = Prompt(
    "ct200: hop gate",
    "Is this the right host?",
    (
        "The host key of 192.0.2.1 (192.0.2.1 port 22) is not known here. It shows",
        "ssh-ed25519 SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8",
        "Compare it with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` says on the host itself.",
        "If you accept it, it is written into /home/me/.ssh/known_hosts as 192.0.2.1, and checked from then on.",
    ),
    "type yes to accept the key",
    secret=False,
)


def asks(app: ConsoleApp) -> bool:
    return isinstance(app.screen, LoginPromptScreen)


async def test_a_password_is_asked_in_the_console_and_never_shown() -> None:
    prompts = Prompts()
    async with opened(ct200.midway(), prompts=prompts) as (app, pilot):
        asking = asyncio.create_task(prompts.ask(Prompt("ct200", "The host wants a password", (), "Password")))
        await settled(pilot)
        assert asks(app)
        await pressed(pilot, "s", "e", "[", "/", "x")
        text = screen_text(app)
        assert "se[/x" not in text
        assert "•••••" in text
        await pressed(pilot, "enter")
        assert await asking == "se[/x"
        await settled(pilot)
        assert not asks(app)
    assert prompts.answerer is None


async def test_a_host_key_is_shown_whole_at_80_columns_and_wants_the_word() -> None:
    prompts = Prompts()
    async with opened(ct200.midway(), (80, 24), prompts=prompts) as (app, pilot):
        asking = asyncio.create_task(prompts.ask(HOST_KEY))
        await settled(pilot)
        text = screen_text(app)
        assert "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8" in text
        assert "ct200: hop gate" in text
        assert "type yes to accept the key" in text
        assert "60 s left" in text or "59 s left" in text
        assert len(screen_lines(app)) == 24
        await pressed(pilot, "y")
        assert not asking.done()
        await pressed(pilot, "e", "s", "enter")
        assert await asking == "yes"


async def test_escape_is_no_answer() -> None:
    prompts = Prompts()
    async with opened(ct200.midway(), prompts=prompts) as (_, pilot):
        asking = asyncio.create_task(prompts.ask(HOST_KEY))
        await settled(pilot)
        await pressed(pilot, "escape")
        with pytest.raises(Unanswered, match="was not answered"):
            await asking


async def test_a_question_that_nobody_answers_goes_by_itself() -> None:
    prompts = Prompts(limit=2.0)
    async with opened(ct200.midway(), prompts=prompts) as (app, pilot):
        asking = asyncio.create_task(prompts.ask(HOST_KEY))
        await settled(pilot)
        assert asks(app)
        await until(lambda: not asks(app))
        with pytest.raises(Unanswered, match="nobody answered within"):
            await asking
