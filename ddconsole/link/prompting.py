"""What a login may have to ask a person: a passphrase, a password, a code, or whether a host key is the right one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

ANSWER_TIME = 60.0
"""Seconds for an answer; sshd itself waits two minutes for a login."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. What it says came from a host in part and is to be shown as it is, never as markup."""

    host: str
    """Who asks, as the operator calls it."""
    title: str
    lines: tuple[str, ...] = ()
    """What to know before answering."""
    label: str = ""
    """What is to be typed."""
    secret: bool = True
    """The answer is not shown while it is typed."""


Answerer: TypeAlias = Callable[[Prompt], Awaitable[str | None]]
"""Shows a prompt; None when the person does not want to answer. It is cancelled when the time is over."""


class Unanswered(Exception):
    """Nobody answered; the text says why, for people."""


class Prompts:
    """Where the questions of one link go, and the answers that were right, for as long as this process lives.

    Answers are kept in memory only, so that a link that was lost can be made again without a person; codes that work
    once are not kept.

    Args:
        answerer: who answers; None where nobody can.
        limit: seconds for one answer.
    """

    def __init__(self, answerer: Answerer | None = None, limit: float = ANSWER_TIME) -> None:
        self.answerer = answerer
        self.limit = limit
        self.waiting = 0
        """Questions that are open."""
        self._kept: dict[str, str] = {}

    async def ask(self, prompt: Prompt) -> str:
        """The answer.

        Raises:
            Unanswered: nobody is there, nobody answered in time, or the person declined.
        """
        if self.answerer is None:
            raise Unanswered("there is nobody here to ask")
        self.waiting += 1
        try:
            async with asyncio.timeout(self.limit):
                answer = await self.answerer(prompt)
        except TimeoutError as problem:
            raise Unanswered(f"nobody answered within {self.limit:.0f} s") from problem
        finally:
            self.waiting -= 1
        if answer is None:
            raise Unanswered("the question was not answered")
        return answer

    def without_asking(self) -> "Prompts":
        """The same answers, for a login that no person is to be bothered with."""

        async def decline(_: Prompt) -> str | None:
            return None

        quiet = Prompts(decline, self.limit)
        quiet._kept = self._kept
        return quiet

    def kept(self, what: str) -> str | None:
        """An answer that was right before."""
        return self._kept.get(what)

    def keep(self, what: str, answer: str) -> None:
        """Remember an answer that was right."""
        self._kept[what] = answer

    def forget(self, what: str) -> None:
        """It is not right any more."""
        self._kept.pop(what, None)
