"""ddconsole: run, watch and steer LLM-serving benchmark sweeps on a GPU host."""

__version__ = "0.1.0"
