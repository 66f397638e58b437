import re

import pytest

from ddconsole.rehearsal.arguments import StartError, make_parser, parse

MODEL = ("--model-path", "/dev/shm/Qwen3.6-27B")
TREE = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "/dev/shm/draft")


def test_help_names_the_flags_a_sweep_uses() -> None:
    told = set(re.findall(r"--[a-z0-9-]+", make_parser().format_help()))
    assert told >= {
        "--model-path",
        "--tp-size",
        "--served-model-name",
        "--speculative-algorithm",
        "--speculative-draft-model-path",
        "--speculative-num-draft-tokens",
        "--speculative-dflash-block-size",
        "--speculative-ddtree-budget",
        "--enable-metrics",
        "--decode-log-interval",
        "--max-running-requests",
        "--disable-radix-cache",
        "--grammar-backend",
        "--attention-backend",
        "--mem-fraction-static",
        "--mamba-ssm-dtype",
    }


def test_an_unknown_flag_ends_with_2_and_argparse_s_words(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*MODEL, "--no-such-flag", "3"], {})
    assert ended.value.code == 2
    assert "sglang serve: error: unrecognized arguments: --no-such-flag 3" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "label", "positions"),
    [
        ((), "ar", 1),
        (("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "d"), "dflash", 16),
        ((*TREE, "--speculative-ddtree-budget", "64"), "ddtree-b64", 65),
        (TREE, "ddtree-b15", 16),
    ],
)
def test_the_method_follows_from_the_flags(flags: tuple[str, ...], label: str, positions: int) -> None:
    method = parse([*MODEL, *flags], {}).method
    assert (method.label, method.positions) == (label, positions)


def test_arguments_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(StartError, match="requires setting --speculative-draft-model-path"):
        parse([*MODEL, "--speculative-algorithm", "DDTREE"], {})
    with pytest.raises(StartError, match="Unknown speculative algorithm name: WISHFUL"):
        parse([*MODEL, "--speculative-algorithm", "wishful"], {})


@pytest.mark.parametrize(
    ("visible", "ranks", "gpus", "crosses"),
    [
        (None, 8, tuple(range(8)), True),
        ("4,5,6,7", 4, (4, 5, 6, 7), False),
        ("2,3,4,5", 4, (2, 3, 4, 5), True),
        ("7", 1, (7,), False),
        ("6,9,7", 2, (6,), False),
        ("GPU-51d00000-c200-4000-8000-000000000005", 1, (5,), False),
    ],
)
def test_ranks_sit_on_the_visible_gpus(visible: str | None, ranks: int, gpus: tuple[int, ...], crosses: bool) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    arguments = parse([*MODEL, "--tp-size", str(ranks)], environment)
    assert arguments.gpus == gpus
    assert arguments.speed.crosses_numa == crosses


def test_effective_arguments_are_the_resolved_ones() -> None:
    effective = parse([*MODEL, *TREE, "--speculative-ddtree-budget", "12"], {}).effective()
    assert effective["max_running_requests"] == 48
    assert effective["speculative_num_draft_tokens"] == 13
    assert effective["disable_overlap_schedule"] is True
    assert effective["served_model_name"] == "/dev/shm/Qwen3.6-27B"
    assert parse(MODEL, {}).effective()["speculative_algorithm"] is None
