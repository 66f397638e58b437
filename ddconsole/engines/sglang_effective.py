"""SGLang's effective arguments: what a server resolved its flags, and its own defaults, to."""

import re
from collections.abc import Mapping
from typing import Any

KEYS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_dflash_block_size",
    "speculative_dflash_enable_ddtree",
    "speculative_ddtree_budget",
    "speculative_draft_model_path",
    "speculative_draft_attention_backend",
    "speculative_draft_window_size",
    "speculative_draft_kv_cache_dtype",
    "speculative_draft_model_quantization",
    "speculative_attention_mode",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
    "speculative_use_rejection_sampling",
    "max_running_requests",
    "max_total_tokens",
    "context_length",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "mem_fraction_static",
    "page_size",
    "tp_size",
    "dp_size",
    "pp_size",
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "load_format",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "grammar_backend",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "enable_mixed_chunk",
    "schedule_policy",
    "disable_cuda_graph",
    "disable_custom_all_reduce",
    "max_mamba_cache_size",
    "mamba_ssm_dtype",
    "mamba_full_memory_ratio",
    "mamba_radix_cache_strategy",
    "mamba_scheduler_strategy",
    "linear_attn_backend",
    "enable_deterministic_inference",
    "random_seed",
    "stream_interval",
    "decode_log_interval",
    "enable_cache_report",
    "log_level",
    "device",
)
"""The arguments that decide a measurement: read back after each start, and compared between methods."""

LONGEST_ARGUMENTS = 64 * 1024
"""Characters of the `server_args=` line that are read: it is 15 to 30 KB."""

_VALUE = r"""(?:'(?P<text>[^']*)'|(?P<word>[\w.+-]+))"""
_KEY_VALUE = re.compile(rf"(?<![\w'])'?(?P<key>{'|'.join(KEYS)})'?(?:=|: ){_VALUE}")
_WORDS: Mapping[str, Any] = {"None": None, "True": True, "False": False}


def arguments_in_log(record: str) -> dict[str, Any]:
    """The `KEYS` in a `server_args=ServerArgs(key=value, ...)` line, or in its newer form of a dictionary."""
    found: dict[str, Any] = {}
    for match in _KEY_VALUE.finditer(record[:LONGEST_ARGUMENTS]):
        text = match["text"]
        found.setdefault(match["key"], text if text is not None else _value(match["word"]))
    return found


def effective_arguments(server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The `KEYS` of `/server_info`, and what the scheduler made of them."""
    found = {key: _plain(server_info[key]) for key in KEYS if key in server_info}
    if isinstance(server_info.get("max_total_num_tokens"), int):
        found["max_total_num_tokens"] = server_info["max_total_num_tokens"]
    state = scheduler_state(server_info)
    per_rank = state.get("effective_max_running_requests_per_dp")
    if isinstance(per_rank, int):
        found["effective_max_running_requests_per_dp"] = per_rank
    return found


def scheduler_state(server_info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first data-parallel rank's entry of `internal_states`."""
    states = server_info.get("internal_states")
    if isinstance(states, list) and states and isinstance(states[0], Mapping):
        return states[0]
    return {}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _value(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
