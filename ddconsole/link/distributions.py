"""The installed files of what the host needs, for its Python: copied from here where they fit, else downloaded."""

import asyncio
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from ddconsole.core.visible_text import visible
from ddconsole.link.host_call import HostRefusal
from ddconsole.link.host_python import HostPython

NEEDED = ("aiohttp", "httptools", "psutil", "pydantic", "nvidia-ml-py")
"""What the host's side imports; what these need comes along."""

_DOWNLOAD_TIME = 300.0
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_GLIBC_OF_OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_LOCAL_NAMES = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})
"""Files that say where and how it was installed here: they change nothing there, and differ between machines."""


def this_python() -> HostPython:
    """The interpreter that the console runs in."""
    version = sys.version_info
    return HostPython(
        path=sys.executable,
        version=(version[0], version[1], version[2]),
        soabi=sysconfig.get_config_var("SOABI") or "",
        machine=platform.machine(),
        libc=platform.libc_ver(),
    )


async def files_for(python: HostPython, cache: Path) -> Mapping[str, bytes]:
    """Path below site-packages -> content.

    Args:
        python: the host's.
        cache: where downloaded wheels are kept.

    Raises:
        HostRefusal: they do not fit and cannot be downloaded.
    """
    closure = installed_closure(NEEDED)
    if fits(python, this_python(), closure.values()):
        return installed_files(closure.values())
    pins = [f"{one.metadata['Name']}=={one.version}" for one in closure.values()]
    return wheel_files(await download(python, pins, cache))


def installed_closure(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions of this environment that `names` need, by normalised name. Extras are left out.

    Raises:
        HostRefusal: one is not installed here.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, "") for name in names]
    while waiting:
        name, marker = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as problem:
            # A marker that does not hold here (an old Python, another system): that it is absent is right.
            if marker:
                continue
            raise HostRefusal(f"{name} is not installed beside this console", "install ddconsole anew") from problem
        for requirement in found[key].requires or ():
            needs, _, condition = requirement.partition(";")
            match = _REQUIREMENT.match(needs.strip())
            if match and "extra ==" not in condition:
                waiting.append((match.group(), condition.strip()))
    return dict(sorted(found.items()))


def fits(python: HostPython, here: HostPython, closure: Iterable[importlib.metadata.Distribution]) -> bool:
    """Whether what is installed here runs there: the same binary interface, and a C library that is new enough."""
    same = python.version[:2] == here.version[:2] and python.soabi == here.soabi and bool(here.soabi)
    if not same or python.machine != here.machine or (python.libc[0], here.libc[0]) != ("glibc", "glibc"):
        return False
    needed = max((_glibc_needed(one, _numbers(here.libc[1])) for one in closure), default=(0, 0))
    return _numbers(python.libc[1]) >= needed


def _glibc_needed(distribution: importlib.metadata.Distribution, here: tuple[int, int]) -> tuple[int, int]:
    """The C library that a distribution's compiled modules need; what was compiled here needs this machine's."""
    text = distribution.read_text("WHEEL") or ""
    tags = [line.removeprefix("Tag:").strip() for line in text.splitlines() if line.startswith("Tag:")]
    if tags and all(tag.endswith("-any") for tag in tags):
        return (0, 0)
    found: list[tuple[int, int]] = []
    for tag in tags:
        match = re.search(r"manylinux_(\d+)_(\d+)_", tag)
        old = re.search(r"(manylinux(?:1|2010|2014))_", tag)
        if match:
            found.append((int(match.group(1)), int(match.group(2))))
        elif old:
            found.append(_GLIBC_OF_OLD_TAGS[old.group(1)])
    return min(found, default=here)


def _numbers(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def installed_files(closure: Iterable[importlib.metadata.Distribution]) -> dict[str, bytes]:
    """What they have in site-packages; scripts and compiled bytecode stay behind.

    Raises:
        HostRefusal: a distribution does not know its files.
    """
    content: dict[str, bytes] = {}
    for distribution in closure:
        if distribution.files is None:
            name = distribution.metadata["Name"]
            raise HostRefusal(f"{name} does not say which files are its own", "install it from a wheel")
        for file in distribution.files:
            if _wanted(file):
                content[file.as_posix()] = Path(str(file.locate())).read_bytes()
    return content


def _wanted(path: PurePosixPath) -> bool:
    if path.is_absolute() or ".." in path.parts or "__pycache__" in path.parts or path.suffix == ".pyc":
        return False
    return not (path.parts[0].endswith(".dist-info") and path.name in _LOCAL_NAMES)


# --- another binary interface ----------------------------------------------------------------------------------


async def download(python: HostPython, pins: list[str], cache: Path) -> list[Path]:
    """Wheels for another Python, by pip, kept in the cache by what was asked.

    Raises:
        HostRefusal: pip is missing, cannot reach an index, or there are no such wheels.
    """
    tag = f"cp{python.version[0]}{python.version[1]}"
    asked = hashlib.sha256("\n".join([*sorted(pins), tag, python.machine, *python.libc]).encode()).hexdigest()[:16]
    folder = cache / "wheels" / f"{tag}-{python.machine}-{asked}"
    if not folder.is_dir():
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}.part")
        fresh.mkdir(parents=True, exist_ok=True)
        await _pip(python, pins, fresh)
        try:
            fresh.rename(folder)
        except OSError:
            # Another console was faster: its folder holds the same.
            if not folder.is_dir():
                raise
    return sorted(folder.glob("*.whl"))


async def _pip(python: HostPython, pins: list[str], folder: Path) -> None:
    version = f"{python.version[0]}.{python.version[1]}"
    platforms = [part for one in _platforms(python) for part in ("--platform", one)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--only-binary=:all:", "--no-deps", "--implementation", "cp", "--python-version", version),
        *(*platforms, "--dest", str(folder), *pins),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_DOWNLOAD_TIME):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
    if process.returncode:
        said = visible(output.decode(errors="replace").strip()[-400:])
        here = this_python()
        raise HostRefusal(
            f"the host's Python {version} ({python.soabi}) needs other wheels than this console's "
            f"({here.soabi}), and pip could not get them: {said}",
            f"put Python {here.version[0]}.{here.version[1]} on the host and name it in the plan: agent: {{python: "
            "...}, or run ddconsole once where a package index can be reached",
        )


def _platforms(python: HostPython) -> list[str]:
    if python.libc[0] != "glibc":
        return [f"musllinux_1_{minor}_{python.machine}" for minor in (2, 1)]
    major, minor = _numbers(python.libc[1])
    return [
        *(f"manylinux_{major}_{one}_{python.machine}" for one in range(minor, 16, -1)),
        *(f"{old}_{python.machine}" for old in ("manylinux2014", "manylinux2010")),
    ]


def wheel_files(wheels: Iterable[Path]) -> dict[str, bytes]:
    """What unpacking the wheels would put into site-packages."""
    content: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = _installed_place(PurePosixPath(member.filename))
                if not member.is_dir() and path is not None and _wanted(path):
                    content[path.as_posix()] = archive.read(member)
    return content


def _installed_place(path: PurePosixPath) -> PurePosixPath | None:
    if not path.parts[0].endswith(".data"):
        return path
    inside = path.parts[1:]
    return PurePosixPath(*inside[1:]) if inside[0] in {"purelib", "platlib"} and len(inside) > 1 else None
