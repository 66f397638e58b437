"""What travels to a host: ddconsole's host side and the packages it imports, as one archive named by its content."""

import asyncio
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ddconsole
from ddconsole.link.distributions import files_for
from ddconsole.link.host_python import HostPython

HOST_PACKAGES = ("agent", "core", "engines", "load", "preflight", "probe", "rehearsal", "runner")
"""The parts of ddconsole that run on the host."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive in the console's cache."""

    name: str
    """Sixteen hex digits of the hash over its sorted files: the name of its folder on the host."""
    archive: Path
    size: int
    sha256: str
    """Of the archive."""
    unpacked: int
    """Bytes of its files."""


@dataclass(frozen=True, slots=True)
class BundleExtras:
    """Files beside what every host needs, by their path below site-packages."""

    files: Mapping[str, bytes] = field(default_factory=dict)


async def build_bundle(python: HostPython, cache: Path, extras: BundleExtras | None = None) -> Bundle:
    """The bundle for a host's Python; the same content gives the same bytes, made once.

    Args:
        python: the host's.
        cache: a folder of the console's, such as `default_cache_directory()`.
        extras: more files.

    Raises:
        HostRefusal: the packages cannot be had for that Python.
        OSError: the cache cannot be written.
    """
    packages = await files_for(python, cache)
    return await asyncio.to_thread(_build, python, packages, cache, extras or BundleExtras())


def _build(python: HostPython, packages: Mapping[str, bytes], cache: Path, extras: BundleExtras) -> Bundle:
    site = f"lib/python{python.version[0]}.{python.version[1]}/site-packages"
    content = {f"{site}/{path}": data for path, data in {**packages, **own_files(), **extras.files}.items()}
    name = content_hash(content)
    archive = cache / "bundles" / f"{name}.tar.gz"
    data = archive.read_bytes() if archive.is_file() else b""
    if not data:
        data = pack(content)
        archive.parent.mkdir(parents=True, exist_ok=True)
        fresh = archive.with_suffix(f".{os.getpid()}.part")
        fresh.write_bytes(data)
        fresh.rename(archive)
    unpacked = sum(map(len, content.values()))
    return Bundle(name, archive, len(data), hashlib.sha256(data).hexdigest(), unpacked)


def own_files() -> dict[str, bytes]:
    """The host's side of ddconsole, with the data files in its packages."""
    root = Path(ddconsole.__file__).parent
    paths = [root / "__init__.py"]
    for package in HOST_PACKAGES:
        paths += (root / package).rglob("*")
    return {
        f"ddconsole/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def content_hash(content: Mapping[str, bytes]) -> str:
    """Sixteen hex digits of SHA-256 over the sorted paths with the SHA-256 of each file."""
    digest = hashlib.sha256()
    for path in sorted(content):
        digest.update(path.encode() + b"\0" + hashlib.sha256(content[path]).digest())
    return digest.hexdigest()[:16]


def pack(content: Mapping[str, bytes]) -> bytes:
    """A tar.gz whose bytes depend on nothing but paths and contents."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(content):
            member = tarfile.TarInfo(path)
            member.size = len(content[path])
            member.mode = 0o755 if path.endswith(".so") or ".so." in path else 0o644
            tar.addfile(member, io.BytesIO(content[path]))
    return buffer.getvalue()
