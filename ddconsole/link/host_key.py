"""Whether a host is the one that it was: what is said of an unknown key, of a changed one, and how one is accepted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from ddconsole.core.visible_text import visible
from ddconsole.link.known_hosts import KnownHosts, KnownKey, append_key
from ddconsole.link.prompting import Prompt, Prompts, Unanswered
from ddconsole.link.ssh_config import SeenOption
from ddconsole.link.stages import Stage, StageError

ACCEPT_WORD = "yes"
_NOWHERE = Path("/dev/null")


@dataclass
class HostKeyWatch:
    """What one connection was shown, and what the files say of it."""

    host: str
    """As errors call it: the host, or the hop on the way to it."""
    alias: str
    """For `ssh ALIAS`."""
    known: KnownHosts
    name: str = ""
    """How the host stands in known_hosts."""
    hashed: bool = False
    presented: asyncssh.SSHKey | None = None
    address: str = ""
    authority: asyncssh.SSHKey | None = field(default=None)
    """Who signed the host's certificate, where that is nobody known."""


class HostKeyUnknown(StageError):
    """No file knows the host's key: a person may accept it."""

    def __init__(self, watch: HostKeyWatch, key: asyncssh.SSHKey) -> None:
        files = ", ".join(str(one) for one in watch.known.files)
        text = f"E102 the host key of {watch.address} is not known: {described(key)}; looked in {files}"
        do = f"compare it with {check_command(key)} on the host itself, then accept it once with `ssh {watch.alias}`"
        super().__init__(Stage.HOST_KEY, watch.host, text, do, final=True)
        self.watch = watch
        self.key = key


def host_key_error(watch: HostKeyWatch, problem: Exception) -> StageError:
    """Why a connection was refused because of the host's key."""
    key, known = watch.presented, watch.known
    if watch.authority is not None:
        return _unknown_authority(watch, watch.authority)
    if key is None:
        text = f"E103 {visible(str(problem))}"
        places = ", ".join(f"{one.file} line {one.line}" for one in known.revoked)
        if places:
            text += f" ({places})"
        return StageError(Stage.HOST_KEY, watch.host, text, "do not connect; ask who runs the host", final=True)
    if known.keys:
        text = (
            f"E103 the host key of {watch.address} HAS CHANGED: it is now {described(key)}, known is "
            f"{_places(known.keys)}"
        )
        do = "somebody may listen in: ask who runs the host, and remove that line only when they confirm the new key"
        return StageError(Stage.HOST_KEY, watch.host, text, do, final=True)
    return HostKeyUnknown(watch, key)


def _unknown_authority(watch: HostKeyWatch, authority: asyncssh.SSHKey) -> StageError:
    text = (
        f"E103 the certificate of {watch.address} is signed by {described(authority)}, known authorities are "
        f"{_places(watch.known.authorities)}"
    )
    do = "ask who runs the host whether its certificate authority was replaced"
    return StageError(Stage.HOST_KEY, watch.host, text, do, final=True)


def no_common_key(watch: HostKeyWatch, problem: Exception) -> StageError:
    """The host offers no key of a kind that is known, which may be a changed key too."""
    places = ", ".join(f"{one.file} line {one.line}" for one in watch.known.keys)
    text = visible(str(problem)) + (f"; keys of this host stand in {places}" if places else "")
    do = "the host offers no key of a known kind: ask who runs it whether its keys were replaced"
    return StageError(Stage.HOST_KEY, watch.host, text, do, final=True)


def checks_off(host: str, option: SeenOption) -> StageError:
    """The ssh configuration would have host keys accepted unseen."""
    return StageError(
        Stage.HOST_KEY,
        host,
        f"E104 the ssh configuration turns the check of host keys off ({option.place}: {option.name} {option.value})",
        "ddconsole always checks: name a file there for this host, such as ~/.ssh/known_hosts; you are asked once",
        final=True,
    )


async def accept(unknown: HostKeyUnknown, prompts: Prompts) -> None:
    """Ask a person whether an unknown key is the right one; when it is, known_hosts knows it afterwards.

    Raises:
        HostKeyUnknown: it was not accepted.
        StageError: it cannot be written down.
    """
    watch, key = unknown.watch, unknown.key
    file = _file_for(watch.known.files)
    lines = (
        f"The host key of {watch.address} is not known here. It shows",
        described(key),
        f"Compare it with what {check_command(key)} says on the host itself.",
        f"If you accept it, it is written into {file} as {watch.name}, and checked from then on.",
    )
    prompt = Prompt(watch.host, "Is this the right host?", lines, f"type {ACCEPT_WORD} to accept the key", secret=False)
    try:
        answer = await prompts.ask(prompt)
    except Unanswered as why:
        # Where nobody can be asked the error alone says all there is to say.
        if prompts.answerer is None:
            raise unknown from None
        raise StageError(
            Stage.HOST_KEY, watch.host, f"{unknown.text.removeprefix(_head(unknown))}; {why}", unknown.do, final=True
        ) from why
    if answer.strip().lower() != ACCEPT_WORD:
        raise unknown
    try:
        append_key(file, watch.name, key, hashed=watch.hashed)
    except OSError as problem:
        text = f"E102 the accepted host key cannot be written into {file}: {problem.strerror or problem}"
        raise StageError(Stage.HOST_KEY, watch.host, text, "make the file writable", final=True) from problem


def _head(problem: StageError) -> str:
    return f"{problem.host}: {problem.stage}: "


def _file_for(files: Sequence[Path]) -> Path:
    return next((one for one in files if one != _NOWHERE), files[0])


def _places(keys: Sequence[KnownKey]) -> str:
    return ", ".join(f"{one.file} line {one.line} ({one.key.get_fingerprint()})" for one in keys)


def described(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 SHA256:...`, as `ssh-keygen -lf` has it."""
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


def check_command(key: asyncssh.SSHKey) -> str:
    """What shows the same fingerprint on the host itself."""
    name = key.get_algorithm()
    kind = "ed25519" if "ed25519" in name else "ecdsa" if "ecdsa" in name else "rsa"
    return f"`ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub`"
