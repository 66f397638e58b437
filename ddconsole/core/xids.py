"""The NVIDIA driver's error events (Xid) by their numbers: what they are, and which of them need somebody."""

MEANINGS = {
    13: "graphics engine exception", 31: "memory page fault", 43: "stopped processing", 45: "work was torn down",
    48: "double-bit memory error", 61: "internal microcontroller", 62: "internal microcontroller halted",
    63: "row remapping recorded", 64: "row remapping failed", 68: "video processor", 69: "graphics engine class error",
    74: "NVLink", 79: "the GPU has fallen off the bus", 92: "many single-bit errors", 94: "contained memory error",
    95: "uncontained memory error", 109: "context switch timeout", 119: "GSP did not answer", 120: "GSP error",
    140: "unrecovered memory error", 143: "GPU initialisation", 154: "the driver asks for a recovery",
}  # fmt: skip
"""Xid numbers in words."""
FATAL = frozenset({48, 61, 62, 64, 69, 74, 79, 92, 95, 109, 119, 120, 140, 143, 154})
"""They need a reset, a reboot or a look; a replaced card in the end."""
OF_PROGRAMS = frozenset({13, 31, 43, 45, 63, 68, 94})
"""An ended or broken program, or a repair: 45 comes with every torn-down job and flagged whole racks elsewhere."""
