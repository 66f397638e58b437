"""One thing wrong at a time: for every check, what makes it fail or warn, and what leaves it without an answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from one_check import libraries, plan
from synthetic_host import SyntheticHost

from ddconsole.core.inventory import Inventory
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import DiskRoom, PortUse, Ran
from ddconsole.preflight.manifest import manifest_file
from ddconsole.preflight.profile import profile_of
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine

MODEL = "/dev/shm/Qwen3.6-27B"
GIB = 1 << 30
HELD = {"nvmlDeviceGetMemoryInfo_v2": {"value": {"total": 96 << 30, "used": 71 << 30, "free": 25 << 30}}}
SOMEBODY = {"nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 4242, "usedGpuMemory": 71 << 30}]}}
WEDGED = {
    "nvmlDeviceGetUtilizationRates": {"value": {"gpu": 100, "memory": 0}},
    "nvmlDeviceGetPowerUsage": {"value": 130000},
    "nvmlDeviceGetMemoryInfo_v2": {"value": {"total": 96 << 30, "used": 624 << 20, "free": 95 << 30}},
}
"""As it was seen on this card: busy, 130 W, 624 MiB, no process, and every health tool green."""
NOT_TOLD = {"error": "Insufficient Permissions", "code": 4}
FAIL, WARN = Outcome.FAIL, Outcome.WARN

Change = Callable[[Facts, RecordedMachine, SyntheticHost], Facts]


@dataclass(frozen=True, slots=True)
class Broken:
    """A host with one thing wrong, and what the operator then reads."""

    check: str
    change: Change
    observed: str
    remedy: str
    outcome: Outcome = FAIL


# --- changes ---------------------------------------------------------------------------------------------------


def nvml(gpus: dict[int, dict[str, Any]] | None = None, **everywhere: Any) -> Change:
    """Other answers of NVML."""
    return lambda facts, _, synthetic: synthetic.change(facts, gpus, **everywhere)


def recorded(change: Change) -> Change:
    """The host was recorded as good, and then changed."""
    return lambda facts, machine, synthetic: change(replace(facts, profile=profile_of(facts, 1.0)), machine, synthetic)


def answer(gpu: int, call: str, value: Any) -> Change:
    return nvml({gpu: {call: {"value": value}}})


def blind(call: str) -> Change:
    return nvml({5: {call: NOT_TOLD}})


def file(path: str, content: bytes | None) -> Change:
    """A file with another content, or gone."""

    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.files.pop(path, None)
        if content is not None:
            machine.files[path] = content
        return facts

    return change


def program(name: str, ran: Ran | None) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.programs.pop(name, None)
        if ran is not None:
            machine.programs[name] = ran
        return facts

    return change


def child(name: str, value: Any, code: int | None = 0) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.children[name] = Ran(code, json.dumps(value) if code == 0 else "", "" if code == 0 else str(value), 0.1)
        return facts

    return change


def hang(*names: str) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.hangs.update(names)
        return facts

    return change


def device(path: str, recorded: RecordedDevice | None) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.devices.pop(path, None)
        if recorded is not None:
            machine.devices[path] = recorded
        return facts

    return change


def room(path: str, free: int, *, writable: bool = True) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        machine.rooms[path] = DiskRoom(path, free, 10_000, writable=writable)
        return facts

    return change


def planned(**changes: Any) -> Change:
    return lambda facts, _, __: plan(facts, **changes)


def environment(**added: str) -> Change:
    return lambda facts, _, __: replace(facts, environment={**facts.environment, **added})


def known(**changes: Any) -> Change:
    """Facts that are as told."""
    return lambda facts, _, __: replace(facts, **changes)


def unit_active(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    out = "LoadState=loaded\nActiveState=active\nSubState=running\nTriggeredBy=\nMainPID=77\n"
    machine.programs["systemctl"] = Ran(0, out, "", 0.01)
    return facts


def port_taken(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    machine.ports[30000] = PortUse(free=False, pid=812, command="nginx", error="Address already in use")
    return facts


def shard_cut_short(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    path = f"{MODEL}/model-00002-of-00002.safetensors"
    machine.files[path] = machine.files[path][:-10]
    return facts


def other_bytes(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    path = f"{MODEL}/model-00002-of-00002.safetensors"
    machine.files[path] = machine.files[path][:-4] + b"\1\1\1\1"
    return facts


def manifest_damaged(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    machine.files[manifest_file(facts.plan.manifests, MODEL)] = b'{"files": 7}'
    return facts


def driver_mismatch(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    machine.children["libraries"] = libraries(cuda="/lib/libcuda.so.575.57.08", nvml="/lib/libnvidia-ml.so.575.57.08")
    return facts


def little_memory(shared: int, limit: int) -> Change:
    """The container's own limit, most of it taken by tmpfs."""

    def change(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
        group = "/sys/fs/cgroup/ns"
        machine.files[f"{group}/memory.max"] = f"{limit}\n".encode()
        machine.files[f"{group}/memory.current"] = f"{shared + (3 << 30)}\n".encode()
        stat = f"anon {1 << 30}\nfile {shared + (2 << 30)}\nshmem {shared}\n"
        machine.files[f"{group}/memory.stat"] = stat.encode()
        machine.files[f"{group}/memory.events"] = b"oom 3\noom_kill 2\n"
        return facts

    return change


def leftovers(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    for number in range(20):
        machine.files[f"/dev/shm/nccl-{number:06}"] = b""
        machine.sizes[f"/dev/shm/nccl-{number:06}"] = 10 << 20
    return facts


def shm_gone(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    machine.files = {name: data for name, data in machine.files.items() if not name.startswith("/dev/shm/")}
    return facts


def swapping(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    counts = iter((b"pswpin 0\npswpout 0\n", b"pswpin 9000\npswpout 700\n"))
    machine.changing["/proc/vmstat"] = counts
    return facts


def no_versions(facts: Facts, machine: RecordedMachine, _: SyntheticHost) -> Facts:
    del machine.files["/proc/driver/nvidia/version"]
    machine.children["libraries"] = Ran(1, "", "broken", 0.1)
    return facts


def no_sample(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
    return replace(facts, host=None, host_problem="no answer since 12:00:01")


def across(facts: Facts, _: RecordedMachine, synthetic: SyntheticHost) -> Facts:
    return synthetic.change(facts, {index: {"nvmlDeviceGetMemoryAffinity": {"value": [0b11]}} for index in range(8)})


def silent(seconds: float) -> Change:
    """The driver hangs in a call: what it said before is all there is."""

    def change(facts: Facts, machine: RecordedMachine, synthetic: SyntheticHost) -> Facts:
        gpus = synthetic.inventory().gpus[:5]
        inventory = Inventory(gpus, "", "GPU 5, nvmlDeviceGetEccMode", seconds, 30.0)
        return replace(no_sample(facts, machine, synthetic), inventory=inventory)

    return change


def stuck(driver: bool) -> dict[str, Any]:
    one = {"pid": 901, "command": "sglang::scheduler_TP3", "where": "os_acquire_rwlock_write", "driver": driver}
    return {"looked": 41, "stuck": [one], "servers": []}


ORPHAN = {"pid": 902, "parent": 1, "command": "sglang::detokenizer"}
XID = "[  900.1] NVRM: Xid (PCI:0000:15:00): {number}, pid=4242, name=python, details\n"
STALLED = b"some avg10=1 avg60=2.5 avg300=1 total=1\nfull avg10=0 avg60=1.20 avg300=0 total=0\n"
HALF_BAR = {"bar1Total": 256 << 20, "bar1Free": 1, "bar1Used": 1}
SMALLER = {"nvmlDeviceGetMemoryInfo_v2": {"value": {"total": 90 << 30, "used": 0, "free": 90 << 30}}}
NO_PEERS: list[dict[str, Any]] = [
    {"a": a, "b": b, "common_ancestor": {"value": 50}, "p2p[0]": {"value": 1}, "p2p[2]": {"value": 5}}
    for a in range(8)
    for b in range(8)
]
FAR = [{**one, "p2p[0]": {"value": 0}} for one in NO_PEERS]
BLIND_PEERS = [{**one, "p2p[0]": NOT_TOLD} for one in NO_PEERS]
NODE_0_ONLY = b"Cpus_allowed_list:\t0-63\n"
ONE_NODE = {index: {"nvmlDeviceGetMemoryAffinity": {"value": [1]}} for index in range(8)}
