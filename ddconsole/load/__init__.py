"""The load generator: workloads, the streaming client, timing and per-request records."""
