"""How an operator comes back to a run, in words."""

LOCAL = "local"
"""The host name that means this machine."""


def come_back(run: str, host: str) -> str:
    """What opens a run again from any machine: `ddconsole attach night --host ct200`."""
    return f"ddconsole attach {run}" + (f" --host {host}" if host and host != LOCAL else "")
