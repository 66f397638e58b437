import asyncio
import importlib.metadata
import io
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.link import distributions
from ddconsole.link.bundle import BundleExtras, build_bundle, content_hash, own_files, pack
from ddconsole.link.distributions import files_for, fits, installed_closure, this_python, wheel_files
from ddconsole.link.host_call import HostRefusal

HERE = this_python()


def test_the_host_gets_its_side_and_nothing_of_the_consoles() -> None:
    files = own_files()
    assert {"ddconsole/__init__.py", "ddconsole/core/fold.py", "ddconsole/agent/__init__.py"} <= files.keys()
    parts = {path.split("/")[1] for path in files}
    assert not parts & {"link", "report", "planfile", "commands", "cli.py"}
    assert not [path for path in files if path.endswith(".pyc")]


def test_the_archive_depends_on_nothing_but_its_content() -> None:
    content = {"b/x.py": b"1", "a.so": b"2"}
    packed = pack(content)
    assert packed == pack(dict(reversed(content.items())))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [(one.name, one.mode, one.mtime, one.uid) for one in tar] == [
            ("a.so", 0o755, 0, 0),
            ("b/x.py", 0o644, 0, 0),
        ]
    assert content_hash(content) != content_hash({"b/x.py": b"2", "a.so": b"1"})
    assert content_hash({"ab": b"c"}) != content_hash({"a": b"bc"})


async def test_a_bundle_is_made_once_and_carries_extras(tmp_path: Path) -> None:
    one = await build_bundle(HERE, tmp_path, BundleExtras({"more.py": b"x = 1\n"}))
    made = one.archive.stat().st_mtime_ns
    assert await build_bundle(HERE, tmp_path, BundleExtras({"more.py": b"x = 1\n"})) == one
    assert one.archive.stat().st_mtime_ns == made
    assert (await build_bundle(HERE, tmp_path)).name != one.name
    with tarfile.open(one.archive) as tar:
        site = f"lib/python3.{HERE.version[1]}/site-packages"
        assert {f"{site}/more.py", f"{site}/aiohttp/__init__.py", f"{site}/pynvml.py"} <= set(tar.getnames())
        assert not [name for name in tar.getnames() if name.endswith(("direct_url.json", "RECORD", ".pyc"))]


async def test_what_is_copied_is_enough_for_a_python_that_has_nothing(tmp_path: Path) -> None:
    site = tmp_path / f"lib/python3.{HERE.version[1]}/site-packages"
    for path, data in (await files_for(HERE, tmp_path)).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    text = "import aiohttp, httptools, psutil, pydantic, pynvml, sys; print(aiohttp.__file__)"
    argv = [str(tmp_path / "bin/python"), "-I", "-c", text]
    done = (await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True)).stdout
    assert done.strip() == str(site / "aiohttp/__init__.py")


def test_compiled_modules_go_only_where_they_run() -> None:
    closure = list(installed_closure(["aiohttp", "pydantic"]).values())
    assert fits(HERE, HERE, closure)
    assert fits(replace(HERE, version=(*HERE.version[:2], 99)), HERE, closure)
    assert not fits(replace(HERE, version=(3, 99, 0)), HERE, closure)
    assert not fits(replace(HERE, soabi="cpython-311-aarch64-linux-gnu"), HERE, closure)
    assert not fits(replace(HERE, machine="aarch64"), HERE, closure)
    assert not fits(replace(HERE, libc=("", "")), HERE, closure)
    assert not fits(replace(HERE, libc=("glibc", "2.5")), HERE, closure)
    assert fits(replace(HERE, libc=("glibc", "2.39")), HERE, closure)


def test_the_closure_leaves_out_extras_and_what_other_pythons_need() -> None:
    closure = installed_closure(["aiohttp", "pydantic"])
    assert {"aiohttp", "yarl", "multidict", "pydantic-core", "typing-extensions"} <= closure.keys()
    assert not closure.keys() & {"async-timeout", "email-validator", "aiodns"}
    with pytest.raises(HostRefusal, match="no-such-package is not installed beside this console"):
        installed_closure(["no-such-package"])


# --- another Python


def wheel(folder: Path, name: str, tag: str, files: dict[str, bytes]) -> Path:
    path = folder / f"{name}-1.0-{tag}.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


def test_wheels_are_laid_out_as_an_installer_would(tmp_path: Path) -> None:
    path = wheel(tmp_path, "thing", "py3-none-any", {"thing/a.py": b"1", "thing-1.0.data/purelib/b.py": b"2"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("thing-1.0.data/scripts/run", b"no")
        archive.writestr("../out.py", b"no")
    assert wheel_files([path]) == {
        "thing/a.py": b"1",
        "b.py": b"2",
        "thing-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        "thing-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }


async def test_another_python_gets_wheels_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    wheel(links, "thing", "cp314-cp314-manylinux_2_28_aarch64", {"thing.so": b"theirs"})
    wheel(links, "thing", "cp311-cp311-manylinux_2_28_x86_64", {"thing.so": b"ours"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setattr(distributions, "installed_closure", lambda _: {"thing": _Pinned()})
    other = replace(HERE, version=(3, 14, 1), machine="aarch64", soabi="cpython-314", libc=("glibc", "2.39"))
    assert (await files_for(other, tmp_path / "cache"))["thing.so"] == b"theirs"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert (await files_for(other, tmp_path / "cache"))["thing.so"] == b"theirs"


async def test_wheels_that_cannot_be_had_are_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    other = replace(HERE, version=(3, 13, 0), soabi="cpython-313-x86_64-linux-gnu")
    with pytest.raises(HostRefusal, match=r"Python 3\.13 .* needs other wheels than this console's") as refused:
        await files_for(other, tmp_path)
    assert "agent: {python:" in refused.value.do


class _Pinned(importlib.metadata.Distribution):
    """A distribution as far as its name goes."""

    def read_text(self, filename: str) -> str | None:
        return "Name: thing\nVersion: 1.0\n" if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


def test_a_hand_made_environment_is_one(tmp_path: Path) -> None:
    # What `on_host` writes instead of calling venv: the same two things that venv itself writes.
    venv.create(tmp_path / "v", symlinks=True, with_pip=False)
    assert "home = " in (tmp_path / "v/pyvenv.cfg").read_text()
    assert (tmp_path / "v/bin/python").is_symlink()
