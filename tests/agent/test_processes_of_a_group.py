"""Pids of a control group, read while systemd removes groups below it."""

import contextlib
import threading
from pathlib import Path

from ddconsole.agent.systemd_units import processes_of


def test_pids_of_a_group_and_below(tmp_path: Path) -> None:
    inner = tmp_path / "system.slice" / "a.service" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "cgroup.procs").write_text("11\n12\n")
    (inner / "cgroup.procs").write_text("13\n")
    assert processes_of("/system.slice/a.service", (str(tmp_path),)) == {11, 12, 13}


def test_no_group_and_the_root_have_none_of_interest(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("1\n")
    assert processes_of("", (str(tmp_path),)) == processes_of("/", (str(tmp_path),)) == set()


def test_groups_that_vanish_while_they_are_read_are_no_error(tmp_path: Path) -> None:
    root = tmp_path / "a.service"
    root.mkdir()
    (root / "cgroup.procs").write_text("21\n")
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for name in "abcdefgh":
                (root / name / "below").mkdir(parents=True)
            for name in "abcdefgh":
                with contextlib.suppress(OSError):
                    (root / name / "below").rmdir()
                    (root / name).rmdir()

    systemd = threading.Thread(target=come_and_go)
    systemd.start()
    try:
        assert all(processes_of("/a.service", (str(tmp_path),)) == {21} for _ in range(300))
    finally:
        over.set()
        systemd.join()
