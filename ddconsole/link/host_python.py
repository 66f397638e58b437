"""The host's Python: found by one command that any login shell passes on, noise around its answer notwithstanding."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core.visible_text import visible
from ddconsole.link.host_call import new_nonce
from ddconsole.link.ssh_host import Completed, HostConnection
from ddconsole.link.stages import Stage, StageError

OLDEST = (3, 11)
ISOLATED = ("-I", "-S", "-B")
"""How an interpreter is run that may be a serving environment's: it reads nothing of it, and writes nothing into it."""
_NAMES = ("python3.13", "python3.12", "python3.11", "python3")
_PROBE_TIME = 30.0

# Nothing here may be a single quote, an exclamation mark, a backslash or a newline: sh, bash, csh and fish all pass it
# on as it is when the whole stands in single quotes.
_PYTHON_SAYS = (
    "import json,platform,sys,sysconfig;"
    "print(json.dumps([sys.executable,list(sys.version_info[:3]),sysconfig.get_config_var(str().join(map(chr,"
    "[83,79,65,66,73]))),platform.machine(),list(platform.libc_ver())]));"
    "sys.exit(sys.version_info[:2]<(3,11))"
)
_SH = (
    "echo; echo {nonce} begin; "
    "echo {nonce} uid $(id -u); "
    'echo {nonce} home "$HOME"; '
    'echo {nonce} state "${{XDG_STATE_HOME:-$HOME/.local/state}}/ddconsole"; '
    "for name in {names}; do "
    'found=$(command -v "$name") || continue; '
    'said=$("$found" -I -S -B -c "{python}" 2>/dev/null); good=$?; '
    'echo {nonce} python "$said" "$found"; '
    "test $good = 0 && break; "
    "done; echo {nonce} end"
)


@dataclass(frozen=True, slots=True)
class HostPython:
    """An interpreter, and what decides which compiled modules it takes."""

    path: str
    version: tuple[int, int, int]
    soabi: str
    """`cpython-311-x86_64-linux-gnu`."""
    machine: str
    libc: tuple[str, str]
    """("glibc", "2.36")."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the first command on a host tells."""

    uid: int
    home: str
    state: str
    """The state directory where the operator named none."""
    python: HostPython


async def probe_host(host: HostConnection, named: Sequence[str] = (), last: Sequence[str] = ()) -> HostFacts:
    """Find a Python of at least 3.11.

    Args:
        host: the connection.
        named: the interpreters to look at instead of those on PATH, best first.
        last: those to look at when PATH has none, such as a serving environment's.

    Raises:
        StageError: E140, the login shell ends before the command is run; E141, there is no such Python.
        LinkLost: the connection ended.
    """
    nonce = new_nonce()
    done = await host.run(probe_command(nonce, named, last), deadline=_PROBE_TIME)
    facts, older = _read(nonce, done, host.host)
    if {"end", "uid", "home", "state"} - facts.keys():
        raise _shell_error(host.host, done)
    python = facts.get("python")
    if not isinstance(python, HostPython):
        found = f"found {', '.join(older)}" if older else f"found none of {', '.join([*(named or _NAMES), *last])}"
        text = f"E141 needs Python {OLDEST[0]}.{OLDEST[1]} or newer, {found}"
        do = "name one in the plan: agent: {python: /path/to/python3}"
        raise StageError(Stage.PYTHON, host.host, text, do, final=True)
    return HostFacts(uid=int(facts["uid"]), home=str(facts["home"]), state=str(facts["state"]), python=python)


def probe_command(nonce: str, named: Sequence[str] = (), last: Sequence[str] = ()) -> list[str]:
    """The command: the console's own version of Python comes first, because the bundle then needs no download."""
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    names = [shlex.quote(one) for one in named]
    if not names:
        names = [own, *(one for one in _NAMES if one != own), *(shlex.quote(one) for one in last)]
    return ["sh", "-c", _SH.format(nonce=nonce, names=" ".join(names), python=_PYTHON_SAYS)]


def _read(nonce: str, done: Completed, host: str) -> tuple[dict[str, Any], list[str]]:
    facts: dict[str, Any] = {}
    older: list[str] = []
    for line in done.stdout.decode(errors="replace").splitlines():
        head, _, rest = line.partition(" ")
        if head != nonce:
            continue
        name, _, value = rest.partition(" ")
        if name != "python":
            facts[name] = value.strip()
        elif (python := _python(value)) is None:
            older.append(f"{value.strip()} (does not run)")
        elif python.version[:2] < OLDEST:
            older.append(f"{'.'.join(map(str, python.version))} at {python.path}")
        else:
            facts["python"] = python
    return facts, [visible(one) for one in older]


def _python(said: str) -> HostPython | None:
    try:
        data, _ = json.JSONDecoder().raw_decode(said)
        path, version, soabi, machine, libc = data
        return HostPython(path, (version[0], version[1], version[2]), soabi or "", machine, (libc[0], libc[1]))
    except (ValueError, TypeError, IndexError):
        return None


def _shell_error(host: str, done: Completed) -> StageError:
    printed = (done.stdout + done.stderr).decode(errors="replace").strip()
    lines = len(printed.splitlines())
    text = f'E140 the login shell printed {lines} lines and exited {done.status}: "{visible(printed[-300:])}"'
    do = "make the account's login scripts silent and its shell one that runs commands"
    return StageError(Stage.PYTHON, host, text, do, final=True)
