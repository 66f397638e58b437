"""The plans that ship, with their workloads: in an installed ddconsole, or in a checkout."""

from pathlib import Path


def shipped_folder() -> Path:
    """The folder with the shipped plans; `workloads/` in it holds prompt sets and scripts."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_plans"
    return installed if installed.is_dir() else package.parent / "plans"


def shipped_names() -> list[str]:
    """Names of the shipped plans."""
    return sorted(path.stem for path in shipped_folder().glob("*.yaml"))
