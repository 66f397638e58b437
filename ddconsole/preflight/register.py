"""All checks, in the order in which they are shown: what a check needs stands before it."""

from ddconsole.preflight.check import Check
from ddconsole.preflight.checks import (
    attention_backend,
    baseline_present,
    cuda_init,
    disk_space,
    displaced_unit,
    driver_match,
    engine_flags,
    foreign_process,
    gpu_count,
    gpu_memory,
    host_reachable,
    model_complete,
    placement_numa,
    port_free,
    uvm_open,
)

CHECKS: tuple[Check, ...] = (
    host_reachable.CHECK,
    disk_space.CHECK,
    driver_match.CHECK,
    gpu_count.CHECK,
    uvm_open.CHECK,
    cuda_init.CHECK,
    gpu_memory.CHECK,
    foreign_process.CHECK,
    displaced_unit.CHECK,
    port_free.CHECK,
    model_complete.CHECK,
    engine_flags.CHECK,
    attention_backend.CHECK,
    placement_numa.CHECK,
    baseline_present.CHECK,
)
