"""Logging in: keys first, then what a person knows, which is asked in the app and never on the tty behind it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from ddconsole.core.visible_text import visible, visible_line
from ddconsole.link.host_key import HostKeyWatch
from ddconsole.link.prompting import Prompt, Prompts, Unanswered
from ddconsole.link.stages import Stage, StageError, StageListener

_TRIES = 2
"""How often one and the same thing is asked for: once, and once more when it was rejected."""


class Login(asyncssh.SSHClient):
    """What asyncssh asks while it connects and logs in, and what a refusal must be able to say.

    Args:
        user: the account, for questions.
        watch: remembers the host's key.
        prompts: who answers questions.
        locked_keys: key files that need a passphrase.
        certificates: of the ssh configuration, for those keys.
        on_stage: told when the login begins.
    """

    def __init__(
        self,
        user: str,
        watch: HostKeyWatch,
        prompts: Prompts,
        locked_keys: Sequence[Path] = (),
        certificates: Sequence[str] = (),
        on_stage: StageListener | None = None,
    ) -> None:
        self._user = user
        self.watch = watch
        self._prompts = prompts
        self._locked = list(locked_keys)
        self._certificates = list(certificates)
        self._on_stage = on_stage
        self._asked: dict[str, int] = {}
        self._used: dict[str, str] = {}
        self._methods: list[str] = []
        self.unanswered = ""
        """Why a question got no answer; after that none is asked any more."""
        self._person = False
        self.begun = False
        """The host's key was right, the login is under way."""
        self.connection: asyncssh.SSHClientConnection | None = None
        """Since key exchange began."""

    @property
    def waits_for_a_person(self) -> bool:
        """Somebody types, touches a key, or is asked by the server on a telephone: silence means nothing."""
        agent = getattr(self.connection, "_agent", None)
        asked = getattr(agent, "_lock", None)
        return self._person or self._prompts.waiting > 0 or (asked is not None and asked.locked())

    # --- the host's key

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Key exchange begins."""
        self.connection = conn
        self._tell(Stage.HOST_KEY)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called for a key that no file knows: never taken here, a person decides first."""
        self.watch.presented = key
        self._remember_address(host, addr, port)
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called for a certificate that nobody known has signed."""
        self.watch.authority = key
        self._remember_address(host, addr, port)
        return False

    def _remember_address(self, host: str, addr: str, port: int) -> None:
        self.watch.address = f"{host} ({addr} port {port})" if addr else f"{host} (port {port})"

    # --- keys

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        """The keys that need no passphrase did not do: those that need one, one at a time."""
        self._offered("publickey")
        while self._locked and not self.unanswered and self._prompts.answerer is not None:
            path = self._locked.pop(0)
            beside = Path(f"{path}-cert.pub")
            certificates = [*self._certificates, *([str(beside)] if beside.is_file() else [])]
            if Path(f"{path}.pub").is_file():
                # The public half is shown first: a key that the server does not want is not asked about.
                loop = asyncio.get_running_loop()
                ask: Any = self._passphrase
                return list(asyncssh.load_keypairs(str(path), ask, certificates, loop=loop))
            try:
                passphrase = await self._passphrase(str(path))
            except asyncssh.KeyEncryptionError:
                continue
            key = await asyncio.to_thread(asyncssh.read_private_key, path, passphrase)
            return list(asyncssh.load_keypairs(key, certlist=certificates))
        return None

    async def _passphrase(self, path: str) -> str:
        """The right passphrase of a key file.

        Raises:
            asyncssh.KeyEncryptionError: nobody gave it.
        """
        what = f"passphrase of {path}"
        kept = self._prompts.kept(what)
        for number in range(_TRIES):
            if kept is None:
                again = ("That was not the passphrase.",) if number else ()
                kept = await self._ask(what, "The key needs its passphrase", again)
            if kept is None:
                break
            try:
                # Deriving the key takes a good part of a second by design.
                await asyncio.to_thread(asyncssh.read_private_key, path, kept)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                self._prompts.forget(what)
                kept = None
                continue
            self._prompts.keep(what, kept)
            return kept
        self.unanswered = self.unanswered or f"the passphrase of {path} was wrong twice"
        raise asyncssh.KeyEncryptionError(f"no passphrase for {path}")

    # --- passwords and codes

    async def password_auth_requested(self) -> str | None:
        """A password, or None when there is none to give."""
        self._offered("password")
        return await self._password("Password", f"password of {self._user}")

    async def kbdint_auth_requested(self) -> str | None:
        """Whether to go into questions and answers at all."""
        self._offered("keyboard-interactive")
        if self.unanswered or self._asked.get("round", 0) >= _TRIES or self._prompts.answerer is None:
            return None
        self._asked["round"] = self._asked.get("round", 0) + 1
        self._person = True
        return ""

    async def kbdint_challenge_received(
        self,
        name: str,
        instructions: str,
        lang: str,  # noqa: ARG002  # asyncssh calls it so
        prompts: Sequence[tuple[str, bool]],
    ) -> list[str] | None:
        """The answers to the server's questions; None leaves this way of logging in."""
        answers: list[str] = []
        said = tuple(visible_line(one) for one in f"{name}\n{instructions}".splitlines() if one.strip())
        for text, echo in prompts:
            label = visible_line(text.strip().rstrip(":")) or "Answer"
            if not echo and "password" in label.lower() and "one-time" not in label.lower():
                answer = await self._password(label, f"password of {self._user}", said)
            else:
                answer = await self._ask(label, "The host asks", said, secret=not echo, label=label)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def _password(self, label: str, what: str, said: tuple[str, ...] = ()) -> str | None:
        kept = self._prompts.kept(f"{self.watch.name} {what}")
        if kept is not None and what not in self._used:
            self._used[what] = kept
            return kept
        if what in self._used:
            self._prompts.forget(f"{self.watch.name} {what}")
        again = ("It was rejected.",) if what in self._used else ()
        answer = await self._ask(what, "The host wants a password", (*said, *again), label=label)
        if answer is not None:
            self._used[what] = answer
        return answer

    async def _ask(
        self, what: str, title: str, lines: Sequence[str] = (), *, secret: bool = True, label: str = ""
    ) -> str | None:
        if self.unanswered or self._asked.get(what, 0) >= _TRIES:
            return None
        self._asked[what] = self._asked.get(what, 0) + 1
        self._person = True
        label = label if label and label.lower() not in what.lower() else what
        try:
            return await self._prompts.ask(Prompt(self.watch.host, title, tuple(lines), label, secret))
        except Unanswered as why:
            self.unanswered = f"{what}: {why}"
            return None

    # --- what became of it

    def begin_auth(self, username: str) -> None:  # noqa: ARG002  # asyncssh calls it so
        """The host's key is right; the login begins."""
        self.begun = True
        self._tell(Stage.AUTH)

    def auth_completed(self) -> None:
        """The answers were right: the ones that stay right are kept for the next link."""
        for what, answer in self._used.items():
            self._prompts.keep(f"{self.watch.name} {what}", answer)

    def _tell(self, stage: Stage) -> None:
        if self._on_stage is not None:
            self._on_stage(stage)

    def _offered(self, method: str) -> None:
        if method not in self._methods:
            self._methods.append(method)

    def refused(self, problem: Exception) -> StageError:
        """The login was refused: what the server offers, what was tried, and what helps."""
        offered = ", ".join(self._methods) or "nothing that ddconsole can do"
        tried = "the keys of files and key agent" + ("".join(f", {what}" for what in self._asked if what != "round"))
        text = f"{visible(str(problem))}; the server offers {offered}; tried were {tried}"
        do = "log in once with `ssh`, load the key with ssh-add, or name user and IdentityFile in the ssh configuration"
        if self._locked and self._prompts.answerer is None:
            names = ", ".join(str(one) for one in self._locked)
            text = f"{names} needs its passphrase, and there is nobody here to ask; {text}"
            do = "load the key with ssh-add, or run ddconsole in a terminal: there it asks"
        elif self.unanswered:
            text += f"; {self.unanswered}"
        if "Too many authentication failures" in str(problem):
            do = "the server counts every key: set IdentitiesOnly yes and one IdentityFile for this host"
        return StageError(Stage.AUTH, self.watch.host, f"E105 {text}", do, final=True)
