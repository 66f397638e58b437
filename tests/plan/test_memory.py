"""The lower bound of memory, against the table of Qwen3.6-27B (GiB of one GPU, recurrent state in fp32)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.core.memory import (
    GIB,
    Fit,
    Load,
    MemoryModel,
    ModelShape,
    Verdict,
    draft_state_bytes,
    fits,
    shape_of_config,
)
from ddconsole.core.sweep import Speculative

QWEN = ModelShape(
    weight_bytes=55.6e9,
    draft_bytes=2 * GIB,
    attention_layers=16,
    kv_heads=4,
    head_dim=256,
    recurrent_layers=48,
    key_heads=16,
    key_dim=128,
    value_heads=48,
    value_dim=128,
    conv_kernel=4,
)
RTX = MemoryModel(QWEN, gpu_gib=95.0)

SHARE: dict[str, float | str] = {"mem-fraction-static": 0.85}

# (requests, draft tokens): budget 16, 32 and 64 keep 17, 33 and 65; DFlash with block 16 keeps 16.
COLUMNS = [(1, 17), (1, 65), (8, 16), (8, 17), (8, 33), (8, 65), (48, 16), (48, 65)]
TABLE = {
    1: [2.4, 9.3, 18.4, 19.5, 37.9, 74.6, 110, 447],
    4: [0.6, 2.3, 4.6, 4.9, 9.5, 18.6, 27.5, 112],
    8: [0.3, 1.2, 2.3, 2.4, 4.7, 9.3, 13.8, 55.9],
}


@pytest.mark.parametrize("tensor_parallel", [1, 4, 8])
def test_the_copies_of_the_recurrent_state(tensor_parallel: int) -> None:
    found = [draft_state_bytes(QWEN, requests, tokens, tensor_parallel) / GIB for requests, tokens in COLUMNS]
    expected = TABLE[tensor_parallel]
    assert [round(one, 1) if one < 100 else round(one) for one in found] == expected


def test_a_request_has_a_seventh_of_a_gibibyte_of_state() -> None:
    assert QWEN.state_bytes_per_request(1) == 48 * 48 * 128 * 128 * 4 + 48 * 10240 * 3 * 2
    assert QWEN.state_bytes_per_request(1) / GIB == pytest.approx(0.1434, abs=1e-4)
    assert replace(QWEN, state_bytes=2).state_bytes_per_request(1) / GIB == pytest.approx(0.0730, abs=1e-4)


def test_the_kv_cache_is_64_kib_a_token_and_heads_are_replicated_beyond_their_number() -> None:
    assert QWEN.kv_bytes_per_token(1) == 64 * 1024
    assert QWEN.kv_bytes_per_token(4) == 16 * 1024
    assert QWEN.kv_bytes_per_token(8) == 16 * 1024


def verdict(budget: int, concurrency: int, args: dict[str, float | str], tensor_parallel: int = 1) -> Verdict:
    speculative = Speculative("ddtree", budget=budget, block_size=16)
    return fits(RTX, Load(concurrency, concurrency, 2048, args, speculative), tensor_parallel).verdict


def test_what_fits_on_one_gpu_of_95_gib() -> None:
    possible = [
        (budget, concurrency)
        for budget in (16, 32, 64)
        for concurrency in (1, 2, 4, 8)
        if verdict(budget, concurrency, SHARE) is Verdict.POSSIBLE
    ]
    assert possible == [(16, 1), (16, 2), (16, 4), (16, 8), (32, 1), (32, 2), (32, 4), (64, 1), (64, 2)]
    assert verdict(64, 8, SHARE, tensor_parallel=4) is Verdict.POSSIBLE


def test_half_the_state_type_lets_twice_the_requests_in() -> None:
    half = {**SHARE, "mamba-ssm-dtype": "bfloat16"}
    assert verdict(32, 8, half) is Verdict.POSSIBLE
    assert verdict(64, 4, half) is Verdict.POSSIBLE
    assert verdict(64, 8, half) is Verdict.UNFIT


def fit_of(load: Load, memory: MemoryModel = RTX) -> Fit:
    return fits(memory, load, 1)


def test_the_parts_are_told_by_name() -> None:
    fit = fit_of(Load(8, 8, 1024, {}, Speculative("dflash", block_size=16)))
    assert {name: round(size, 1) for name, size in fit.parts.items()} == {
        "weights": 51.8,
        "draft": 2.0,
        "recurrent state": 1.1,
        "state copies": 18.4,
        "KV cache": 0.5,
        "workspace": 1.0,
    }
    assert fit.needed_gib == pytest.approx(sum(fit.parts.values()))
    assert fit.available_gib == 95.0
    assert fit.because == ""


def test_a_baseline_and_an_ngram_draft_have_no_draft_weights() -> None:
    assert "draft" not in fit_of(Load(8, 8, 1024)).parts
    assert "draft" not in fit_of(Load(8, 8, 1024, {}, Speculative("ngram", draft_tokens=8))).parts


def test_a_share_that_a_flag_gives_is_the_bound_where_it_is_tighter() -> None:
    load = Load(8, 8, 1024, {"mem-fraction-static": 0.5})
    fit = fit_of(load)
    assert fit.available_gib == 47.5
    assert fit.verdict is Verdict.UNFIT
    assert fit.because == "the weights alone need 51.8 GiB of each GPU, 47.5 GiB are there"
    assert fit_of(Load(8, 8, 1024, {"mem-fraction-static": True})).available_gib == 95.0


def test_the_reason_names_what_is_too_much() -> None:
    tree = Speculative("ddtree", budget=64)
    assert fit_of(Load(8, 8, 1024, {}, tree)).because == "recurrent state alone needs 75.7 GiB, 40.2 GiB are left"
    long = fit_of(Load(8, 8, 262_144))
    assert long.because == "recurrent state and KV cache need 129.1 GiB, 42.2 GiB are left"


def test_an_eight_bit_cache_is_half_as_large() -> None:
    plain, small = (fit_of(Load(1, 1, 65_536, args)).parts for args in ({}, {"kv-cache-dtype": "fp8_e5m2"}))
    assert small["KV cache"] == plain["KV cache"] / 2


# --- shapes from config.json


def test_the_shape_of_a_hybrid_model(fixtures: Path) -> None:
    config = json.loads((fixtures / "hybrid-config.json").read_text())
    assert shape_of_config(config, 55.6e9, 2 * GIB) == QWEN
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 16
    text = {**config["text_config"], "layer_types": kinds}
    del text["full_attention_interval"]
    assert shape_of_config(text, 55.6e9, 2 * GIB) == QWEN


def test_the_shape_of_a_dense_model(fixtures: Path) -> None:
    config = json.loads((fixtures / "dense-config.json").read_text())
    shape = shape_of_config(config, 1e9)
    assert (shape.attention_layers, shape.kv_heads, shape.head_dim) == (30, 3, 64)
    assert shape.state_bytes_per_request(1) == 0
    assert shape.kv_bytes_per_token(1) == 30 * 2 * 3 * 64 * 2


def test_a_config_that_lacks_something_says_what(fixtures: Path) -> None:
    config = json.loads((fixtures / "hybrid-config.json").read_text())
    del config["text_config"]["linear_conv_kernel_dim"]
    with pytest.raises(ValueError, match=r"config\.json lacks 'linear_conv_kernel_dim'"):
        shape_of_config(config, 1e9)
