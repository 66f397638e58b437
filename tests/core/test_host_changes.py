"""What is named when a machine is different from before."""

from dataclasses import replace
from typing import Any

from ddconsole.core.host_changes import host_changes
from ddconsole.core.host_state import GpuState, HostState
from ddconsole.core.readings import Reading, read, unavailable

NONE: Reading[Any] = unavailable("not supported", 0.0, "")


def gpu(index: int, uuid: str, **values: Any) -> GpuState:
    fields = {name: NONE for name in GpuState.__dataclass_fields__ if name != "index"}
    known = {name: read(value, 0.0, "") for name, value in {"uuid": uuid, **values}.items()}
    return GpuState(index, **{**fields, **known})


def host(*gpus: GpuState, **values: Any) -> HostState:
    plain: dict[str, Any] = {
        "at": 1.0,
        "gpus": gpus,
        "nodes": (),
        "pairs": (),
        "disks": (),
        "simulated": False,
        "quiet": False,
    }
    fields: dict[str, Any] = dict.fromkeys((name for name in HostState.__dataclass_fields__ if name not in plain), NONE)
    return HostState(**{**fields, **plain, **{name: read(value, 0.0, "") for name, value in values.items()}})


def test_driver_kernel_and_what_a_boot_forgets_of_a_card() -> None:
    before = host(gpu(0, "GPU-a", power_limit=450.0, persistence=True), driver="580.65.06", kernel="6.8.0-1")
    after = host(gpu(0, "GPU-a", power_limit=600.0, persistence=False), driver="580.82.07", kernel="6.8.0-1")
    assert host_changes(before, after) == (
        "driver 580.65.06 → 580.82.07",
        "GPU 0 power limit in W 450 → 600",
        "GPU 0 persistence mode on → off",
    )


def test_cards_are_known_by_their_uuid() -> None:
    before = host(gpu(0, "GPU-a"), gpu(1, "GPU-b"), gpu(2, "GPU-c"))
    after = host(gpu(0, "GPU-b"), gpu(1, "GPU-a"), gpu(2, "GPU-d"))
    assert host_changes(before, after) == (
        "GPU 2 (GPU-c) is gone",
        "GPU 2 (GPU-d) is new",
        "GPU 0 is now GPU 1 (GPU-a)",
        "GPU 1 is now GPU 0 (GPU-b)",
    )


def test_not_knowing_is_no_change() -> None:
    before = host(gpu(0, "GPU-a", power_limit=450.0), driver="580.65.06")
    after = replace(before, driver=NONE, gpus=(gpu(0, "GPU-a"),))
    assert host_changes(before, after) == host_changes(after, before) == ()
