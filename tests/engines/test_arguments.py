"""From deployments to command lines, and what is refused on the way."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core.sweep import EngineArgument, Placement, Sampling, Speculative, WorkloadPoint
from ddconsole.engines.engine import EngineArgumentError, ServerStart
from ddconsole.engines.register import engine
from ddconsole.engines.sglang_speculation import ddtree_dialect

Start = Callable[..., ServerStart]
Lines = Callable[[str], list[str]]

SGLANG = engine("sglang")
LLAMA = engine("llamacpp")


@pytest.fixture
def sglang_flags(log_lines: Lines) -> frozenset[str]:
    """The option strings of SGLang 0.5.16, from the usage text that it prints before an argument error."""
    return SGLANG.flags_of_help("\n".join(log_lines("sglang/f-badflag.log")))


def pairs(argv: tuple[str, ...]) -> dict[str, str]:
    """Each flag with the word behind it."""
    return {flag: value for flag, value in zip(argv, [*argv[1:], ""], strict=True) if flag.startswith("-")}


def test_option_strings_of_a_recorded_usage_text(sglang_flags: frozenset[str]) -> None:
    assert {"--model-path", "--tp-size", "--decode-log-interval", "--speculative-dflash-block-size"} <= sglang_flags
    assert {"--cuda-graph-max-bs", "--numa-node", "-h"} <= sglang_flags
    assert "--no-such-flag" not in sglang_flags
    assert len(sglang_flags) > 300


def test_option_strings_of_llama_server_help() -> None:
    text = """----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-md,   --spec-draft-model, --model-draft FNAME
                                        draft model for speculative decoding, see --not-an-option
                                        --broken-before, or neither
--spec-type none,draft-simple,ngram-simple
                                        type of speculation
"""
    flags = LLAMA.flags_of_help(text)
    assert {"-h", "--help", "--usage", "-t", "--threads", "-md", "--spec-draft-model", "--model-draft"} <= flags
    assert "--spec-type" in flags
    assert not {"--not-an-option", "--broken-before"} & flags


def test_a_whole_sglang_command(start: Start, sglang_flags: frozenset[str]) -> None:
    deployment = {
        "tensor_parallel": 4,
        "size": 8,
        "placement": Placement((4, 5, 6, 7), "numa"),
        "env": {"NCCL_P2P_LEVEL": "SYS"},
    }
    args: dict[str, EngineArgument] = {
        "attention-backend": "triton",
        "mem-fraction-static": 0.85,
        "disable-radix-cache": True,
        "disable-overlap-schedule": False,
        "cuda-graph-bs": (1, 2, 4),
    }
    command = SGLANG.server_command(start(args=args, known=sglang_flags, **deployment))
    assert command.argv[:3] == ("/venv/bin/python", "-m", "sglang.launch_server")
    found = pairs(command.argv)
    assert found["--model-path"] == "/models/target"
    assert found["--served-model-name"] == "run/l01"
    assert (found["--host"], found["--port"], found["--tp-size"]) == ("127.0.0.1", "30007", "4")
    assert found["--max-running-requests"] == "8"
    assert found["--decode-log-interval"] == "10"
    assert found["--mem-fraction-static"] == "0.85"
    assert {"--enable-metrics", "--enable-cache-report", "--disable-radix-cache"} <= set(command.argv)
    assert command.argv[-4:] == ("--cuda-graph-bs", "1", "2", "4")
    assert "--disable-overlap-schedule" not in command.argv
    assert "--random-seed" not in command.argv
    assert command.env == {
        "NCCL_P2P_LEVEL": "SYS",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "4,5,6,7",
    }


def test_an_empty_placement_leaves_the_gpus_alone(start: Start) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in SGLANG.server_command(start()).env


def test_what_the_plan_decides_is_not_set_again(start: Start, sglang_flags: frozenset[str]) -> None:
    args: dict[str, EngineArgument] = {
        "decode-log-interval": 40,
        "enable-cache-report": False,
        "max-running-requests": 16,
    }
    argv = SGLANG.server_command(start(args=args, known=sglang_flags, size=8)).argv
    assert argv.count("--decode-log-interval") == 1
    assert pairs(argv)["--decode-log-interval"] == "40"
    assert "--enable-cache-report" not in argv
    assert argv.count("--max-running-requests") == 1


@pytest.mark.parametrize(
    ("args", "field", "words"),
    [
        ({"port": 1}, "args.port", "ddconsole sets this flag"),
        ({"--host": "0.0.0.0"}, "args.--host", "ddconsole sets this flag"),
        ({"model": "/x"}, "args.model", "ddconsole sets this flag"),
        ({"served_model_name": "x"}, "args.served_model_name", "ddconsole sets this flag"),
        ({"tensor-parallel-size": 2}, "args.tensor-parallel-size", "ddconsole sets this flag"),
        ({"tp": 2}, "args.tp", "ddconsole sets this flag"),
        ({"config": "x.yaml"}, "args.config", "ddconsole sets this flag"),
        ({"api-key": "x"}, "args.api-key", "secret"),
        ({"admin-api-key": "x"}, "args.admin-api-key", "secret"),
        ({"revision": "hf_abcdefghijklmnopqrstuvwx"}, "args.revision", "secret"),
        ({"revision=x --port": 1}, "args.revision=x --port", "not a flag's name"),
        ({"cuda-graph-bs": (1, "--port", "9")}, "args.cuda-graph-bs", "read as an option"),
        ({"revision": "a\x00b"}, "args.revision", "NUL"),
        ({"mem-fraction-statik": 0.8}, "args.mem-fraction-statik", "--mem-fraction-static"),
        ({"mem_fraction_static": 0.8}, "args.mem_fraction_static", "--mem-fraction-static"),
        ({"speculative-ddtree-budget": 16}, "args.speculative-ddtree-budget", "no flag --speculative-ddtree-budget"),
        ({"max-running-requests": 2}, "args.max-running-requests", "below the largest concurrency"),
    ],
)
def test_refused_arguments_name_their_field(
    start: Start, sglang_flags: frozenset[str], args: Mapping[str, EngineArgument], field: str, words: str
) -> None:
    with pytest.raises(EngineArgumentError) as error:
        SGLANG.server_command(start(args=args, known=sglang_flags, size=4))
    assert error.value.field == field
    assert words in f"{error.value.text} {error.value.do}"


def test_without_the_help_text_flags_pass_and_owned_ones_still_do_not(start: Start) -> None:
    argv = SGLANG.server_command(start(args={"my-fork-flag": 3})).argv
    assert argv[-2:] == ("--my-fork-flag", "3")
    for abbreviation in ("po", "served", "tp", "tensor"):
        with pytest.raises(EngineArgumentError, match="sets this flag"):
            SGLANG.server_command(start(args={abbreviation: "x"}))


def test_a_value_cannot_become_an_option(start: Start, sglang_flags: frozenset[str]) -> None:
    argv = SGLANG.server_command(start(args={"revision": "--port=9"}, known=sglang_flags)).argv
    assert "--revision=--port=9" in argv
    assert "--port=9" not in argv
    argv = SGLANG.server_command(start(args={"chunked-prefill-size": -1}, known=sglang_flags)).argv
    assert argv[-2:] == ("--chunked-prefill-size", "-1")
    with pytest.raises(EngineArgumentError, match="read as an option"):
        LLAMA.server_command(start(args={"jinja": "--host"}))


@pytest.mark.parametrize(
    ("env", "field"),
    [({"HF_TOKEN": "x"}, "env.HF_TOKEN"), ({"CUDA_VISIBLE_DEVICES": "1"}, "env.CUDA_VISIBLE_DEVICES")],
)
def test_refused_environment(start: Start, env: dict[str, str], field: str) -> None:
    for one in (SGLANG, LLAMA):
        with pytest.raises(EngineArgumentError) as error:
            one.server_command(start(env=env))
        assert error.value.field == field
    assert SGLANG.server_command(start(env={"TOKENIZERS_PARALLELISM": "0"})).env["TOKENIZERS_PARALLELISM"] == "0"


def test_fewer_gpus_than_ranks(start: Start) -> None:
    with pytest.raises(EngineArgumentError, match="2 GPUs for tensor parallelism over 4"):
        SGLANG.server_command(start(tensor_parallel=4, placement=Placement((0, 1))))


def spoken(found: dict[str, str]) -> dict[str, str]:
    return {flag.removeprefix("--speculative-"): value for flag, value in found.items() if "speculative" in flag}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            Speculative("dflash", block_size=16),
            {"algorithm": "DFLASH", "draft-model-path": "/models/draft", "num-draft-tokens": "16"},
        ),
        (Speculative("ngram", draft_tokens=8), {"algorithm": "NGRAM", "num-draft-tokens": "8"}),
        (
            Speculative("draft", draft_tokens=5),
            {
                "algorithm": "STANDALONE",
                "draft-model-path": "/models/draft",
                "num-steps": "4",
                "eagle-topk": "1",
                "num-draft-tokens": "5",
            },
        ),
        (Speculative("eagle"), {"algorithm": "EAGLE", "draft-model-path": "/models/draft"}),
        (Speculative("mtp"), {"algorithm": "NEXTN"}),
    ],
)
def test_typed_speculation(
    start: Start, sglang_flags: frozenset[str], typed: Speculative, expected: dict[str, str]
) -> None:
    built = start(speculative=typed, known=sglang_flags, draft="/models/draft")
    assert spoken(pairs(SGLANG.server_command(built).argv)) == expected


DDTREE_BUILDS = {
    "A": frozenset({"--speculative-ddtree-budget"}),
    "B": frozenset({"--speculative-ddtree-budget", "--speculative-ddtree-cpu-build"}),
    "C": frozenset({"--speculative-dflash-enable-ddtree"}),
}


@pytest.mark.parametrize("dialect", ["A", "B", "C"])
def test_ddtree_in_the_builds_dialect(start: Start, sglang_flags: frozenset[str], dialect: str) -> None:
    known = sglang_flags | DDTREE_BUILDS[dialect]
    assert ddtree_dialect(known) == dialect
    typed = Speculative("ddtree", budget=32, block_size=16)
    found = spoken(pairs(SGLANG.server_command(start(speculative=typed, known=known, draft="/d")).argv))
    if dialect == "C":
        assert found["algorithm"] == "DFLASH"
        assert "dflash-enable-ddtree" in found
        assert (found["num-draft-tokens"], found["dflash-block-size"]) == ("33", "16")
    else:
        assert found == {"algorithm": "DDTREE", "draft-model-path": "/d", "ddtree-budget": "32"}


@pytest.mark.parametrize("known", [None, "stock"])
def test_a_build_without_ddtree_says_what_was_looked_for(
    start: Start, sglang_flags: frozenset[str], known: str | None
) -> None:
    built = start(speculative=Speculative("ddtree", budget=8), known=sglang_flags if known else None, draft="/d")
    with pytest.raises(EngineArgumentError) as error:
        SGLANG.server_command(built)
    assert error.value.field == "speculative.kind"
    assert "--speculative-ddtree-budget" in error.value.text
    assert "--speculative-dflash-enable-ddtree" in error.value.text


@pytest.mark.parametrize(
    ("typed", "draft", "field"),
    [
        (Speculative("dflash"), None, "model.draft"),
        (Speculative("medusa"), "/d", "speculative.kind"),
        (Speculative("draft", draft_tokens=1), "/d", "speculative.draft_tokens"),
    ],
)
def test_typed_speculation_that_cannot_be(
    start: Start, sglang_flags: frozenset[str], typed: Speculative, draft: str | None, field: str
) -> None:
    with pytest.raises(EngineArgumentError) as error:
        SGLANG.server_command(start(speculative=typed, known=sglang_flags, draft=draft))
    assert error.value.field == field


def test_typed_and_raw_speculation_do_not_mix(start: Start, sglang_flags: frozenset[str]) -> None:
    args: dict[str, EngineArgument] = {"speculative-num-draft-tokens": 8}
    with pytest.raises(EngineArgumentError, match="sets it already"):
        SGLANG.server_command(
            start(args=args, speculative=Speculative("dflash", block_size=16), known=sglang_flags, draft="/d")
        )


def test_raw_speculation_takes_the_plans_draft(start: Start) -> None:
    raw = start(args={"speculative-algorithm": "DDTREE", "speculative-ddtree-budget": 16}, draft="/d")
    assert pairs(SGLANG.server_command(raw).argv)["--speculative-draft-model-path"] == "/d"
    ngram = start(args={"speculative-algorithm": "NGRAM"}, draft="/d")
    assert "--speculative-draft-model-path" not in SGLANG.server_command(ngram).argv


def test_a_whole_llama_command(start: Start) -> None:
    known = frozenset({"--slots", "--slot-save-path", "--cache-ram", "--threads", "-t", "--ctx-size"})
    found = pairs(LLAMA.server_command(start(args={"t": 1}, known=known, size=4, context_tokens=1000)).argv)
    assert found["--model"] == "/models/target"
    assert (found["--alias"], found["--parallel"], found["--ctx-size"]) == ("run/l01", "4", str(4 * 1024))
    assert {"--metrics", "--slots"} <= set(found)
    assert (found["-t"], found["--slot-save-path"], found["--cache-ram"]) == ("1", ".", "0")
    given = pairs(
        LLAMA.server_command(start(args={"ctx-size": 512, "cache-ram": 64}, known=known, context_tokens=9)).argv
    )
    assert given["--ctx-size"] == "512"
    assert "--slot-save-path" not in given


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (Speculative("ngram", draft_tokens=5), {"--spec-type": "ngram-simple", "--spec-ngram-simple-size-m": "5"}),
        (
            Speculative("draft", draft_tokens=4),
            {"--spec-type": "draft-simple", "--spec-draft-model": "/d", "--spec-draft-n-max": "4"},
        ),
        (
            Speculative("dflash", block_size=16),
            {"--spec-type": "draft-dflash", "--spec-draft-model": "/d", "--spec-draft-n-max": "15"},
        ),
    ],
)
def test_llama_speculation(start: Start, typed: Speculative, expected: dict[str, str]) -> None:
    found = pairs(LLAMA.server_command(start(speculative=typed, draft="/d")).argv)
    assert {flag: value for flag, value in found.items() if flag.startswith("--spec")} == expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"speculative": Speculative("ddtree", budget=8), "draft": "/d"}, "speculative.kind"),
        ({"speculative": Speculative("draft")}, "model.draft"),
        ({"speculative": Speculative("ngram"), "known": frozenset({"--model"})}, "speculative.kind"),
        ({"tensor_parallel": 2}, "tensor_parallel"),
        ({"args": {"np": 2}}, "args.np"),
        ({"args": {"m": "/x"}}, "args.m"),
        ({"args": {"hf-repo": "a/b"}}, "args.hf-repo"),
        ({"args": {"threds": 2}, "known": frozenset({"--threads"})}, "args.threds"),
    ],
)
def test_llama_refuses(start: Start, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(EngineArgumentError) as error:
        LLAMA.server_command(start(**fields))
    assert error.value.field == field


def test_request_bodies(start: Start, point: Callable[..., WorkloadPoint]) -> None:
    body = SGLANG.request_body(start(), point())
    assert body == {
        "max_tokens": 256,
        "temperature": 0.0,
        "seed": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sampling = Sampling(temperature=1.0, seed=None, top_p=0.9, top_k=20, ignore_eos=False, thinking=False)
    speculating = SGLANG.request_body(start(speculative=Speculative("dflash")), point(sampling=sampling))
    assert speculating["return_spec_tokens_details"] is True
    assert (speculating["top_p"], speculating["top_k"], speculating["ignore_eos"]) == (0.9, 20, False)
    assert speculating["chat_template_kwargs"] == {"enable_thinking": False}
    assert "seed" not in speculating
    assert LLAMA.request_body(start(), point())["cache_prompt"] is False
    assert LLAMA.request_body(start(), point(kind="closed-loop"))["cache_prompt"] is False
    assert LLAMA.request_body(start(), point(kind="conversation"))["cache_prompt"] is True


def test_commands() -> None:
    command = SGLANG.default_command("/venv/bin/python")
    assert command == ("/venv/bin/python", "-m", "sglang.launch_server")
    assert SGLANG.help_command(command)[-1] == "--help"
    build = SGLANG.build_command(command)
    assert build is not None
    assert build[:2] == ("/venv/bin/python", "-c")
    assert SGLANG.build_command(("sglang", "serve")) is None
    assert LLAMA.build_command(("llama-server",)) == ("llama-server", "--version")
    assert LLAMA.default_command("/p")[1].endswith("xllamacpp_server.py")


def test_the_build_of_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('never imported')\n")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    command = SGLANG.build_command((sys.executable, "-m", "sglang.launch_server"))
    assert command is not None

    def build() -> dict[str, Any]:
        env = {**os.environ, "PYTHONPATH": str(package.parent)}
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
        told: dict[str, Any] = json.loads(ran.stdout)
        return told

    assert build()["commit"] is None  # not of that checkout: nothing is tracked yet
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    clean = build()
    assert clean["file"] == str(package / "__init__.py")
    assert len(clean["commit"]) == 40
    assert (clean["dirty"], clean["changes"]) == (False, None)
    (package / "__init__.py").write_text("raise RuntimeError('patched')\n")
    patched = build()
    assert patched["dirty"] is True
    assert len(patched["changes"]) == 64
