"""SGLang on the CPU for trials: flags, environment, and where its interpreter and its models are."""

import os
from typing import Any

import pytest

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "FEAS_AMX_ATTENTION": "1"}
FLAGS: dict[str, Any] = {
    "device": "cpu",
    "context_length": 2048,
    "max_total_tokens": 16384,
    "sleep_on_idle": True,
    "dtype": "float32",
    "attention_backend": "intel_amx",
}


def folders() -> tuple[str, str]:
    python, models = os.environ.get("DDCONSOLE_SGLANG_PYTHON"), os.environ.get("DDCONSOLE_SGLANG_MODELS")
    if not python:
        pytest.fail("DDCONSOLE_SGLANG_PYTHON is not set: name the Python interpreter of an environment with SGLang")
    if not models:
        pytest.fail("DDCONSOLE_SGLANG_MODELS is not set: name the folder that holds tinypy-hf and tinypy-draft-hf")
    return python, models
