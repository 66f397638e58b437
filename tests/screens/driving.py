"""Opening the console in a test, and reading what it shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from ddconsole.core.history import History
from ddconsole.link.prompting import Prompts
from screens.app import ConsoleApp
from screens.session import Export, Preflight
from screens.sweep import SweepScreen
from tests.screens.fake_feed import FakeFeed


@asynccontextmanager
async def opened(
    feed: FakeFeed,
    size: tuple[int, int] = (80, 24),
    *,
    preflight: Preflight | None = None,
    export: Export | None = None,
    prompts: Prompts | None = None,
) -> AsyncIterator[tuple[ConsoleApp, Pilot[int]]]:
    """The console over a feed, drawn."""
    app = ConsoleApp(feed, preflight, export, History(), prompts)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot)
        yield app, pilot


async def settled(pilot: Pilot[Any]) -> None:
    """Everything that was asked for is drawn: screens open after a refresh, and frames are a tenth of a second."""
    for _ in range(3):
        await pilot.pause()
    await pilot.pause(0.12)


async def shown(app: ConsoleApp, pilot: Pilot[Any], screen: type[Screen[Any]]) -> None:
    """Wait until a dialog is in front: the first one of its kind has its stylesheet read."""
    for _ in range(100):
        if isinstance(app.screen, screen):
            return
        await pilot.pause(0.05)
    raise AssertionError(f"{screen.__name__} does not come")


async def pressed(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, one after the other, and let each be drawn."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
    await settled(pilot)


def screen_lines(app: ConsoleApp) -> list[str]:
    """What stands on the screen, line by line."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def screen_text(app: ConsoleApp) -> str:
    """All of it."""
    return "\n".join(screen_lines(app))


def sweep(app: ConsoleApp) -> SweepScreen:
    """The sweep's screen, which is in front."""
    assert isinstance(app.screen, SweepScreen)
    return app.screen


def toasts(app: ConsoleApp) -> str:
    """What the console told in passing."""
    return "\n".join(notification.message for notification in app._notifications)
