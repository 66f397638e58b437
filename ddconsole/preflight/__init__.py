"""Checks over probe, engine and plan, before a sweep and before each launch."""
