"""The box that other tests stand on: a real systemd that boots, takes logins, and boots again as it was left."""

from collections.abc import Iterator

import pytest
from sshd import login_user
from systemd_box import SystemdBox, systemd_box

from ddconsole.link.ssh_host import connect_ssh

pytestmark = [pytest.mark.ssh, pytest.mark.systemd]
UNIT = "[Service]\nExecStart=/bin/sleep 600\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture
def box() -> Iterator[SystemdBox]:
    login_user()
    with systemd_box() as one:
        yield one


def test_units_run_in_it_and_an_enabled_one_runs_again_after_a_reboot(box: SystemdBox) -> None:
    for name in ("enabled", "plain"):
        box.write(f"/etc/systemd/system/{name}.service", UNIT)
        box.run("systemctl", "start", name)
    box.run("systemctl", "enable", "enabled")
    box.run("systemd-run", "--unit=passing", "sleep", "600")
    box.write("/run/flag", "")
    before = box.show("enabled", "MainPID"), box.run("stat", "-c", "%Y", "/proc/1").stdout
    assert box.show("passing", "ActiveState") == "active"
    box.reboot()
    assert box.show("enabled", "ActiveState") == "active"
    assert box.show("plain", "ActiveState") == "inactive"
    assert box.show("passing", "LoadState") == "not-found"
    assert not box.path("/run/flag").exists()
    assert before != (box.show("enabled", "MainPID"), box.run("stat", "-c", "%Y", "/proc/1").stdout)


def test_a_user_who_lingers_has_units_after_an_orderly_reboot_too(box: SystemdBox) -> None:
    user = login_user().pw_name
    box.linger(user)
    assert box.run("systemctl", "--user", "is-system-running", user=user, check=False).stdout.strip() == "running"
    box.run("systemd-run", "--user", "--unit=own", "sleep", "600", user=user)
    assert box.show("own", "ActiveState", user=user) == "active"
    box.reboot(orderly=True)
    box.linger(user)
    assert box.show("own", "LoadState", user=user) == "not-found"


async def test_root_logs_in_to_a_session_of_logind(box: SystemdBox) -> None:
    connection = await connect_ssh(box.sshd.spec, box.sshd.settings())
    try:
        told = await connection.run(["sh", "-c", "hostname; cat /proc/self/cgroup; systemctl is-active box.target"])
    finally:
        await connection.close()
    assert told.status == 0
    assert b"/session-" in told.stdout
    assert told.stdout.endswith(b"active\n")
