"""Models on a real file system, whole and damaged."""

import json
import struct
from pathlib import Path

import pytest

from ddconsole.preflight.gguf import GgufError, gguf_size
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.model_files import ModelReport, examine_model, is_hub_name


def safetensors(size: int) -> bytes:
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * size


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(kind: int = 8, elements: int = 64, alignment: int | None = 64) -> bytes:
    """A header as llama.cpp writes it: scalars, strings, an array of strings, two tensors."""
    pairs = [
        string("general.architecture") + struct.pack("<I", 8) + string("llama"),
        string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + string("a") + string("bc") + string(""),
        string("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, 1.0, 2.0),
        string("llama.block_count") + struct.pack("<II", 4, 1),
    ]
    if alignment is not None:
        pairs.append(string("general.alignment") + struct.pack("<II", 4, alignment))
    tensors = [
        string("output.weight") + struct.pack("<IQIQ", 1, 32, 0, 0),
        string("blk.0.weight") + struct.pack("<IQQIQ", 2, elements, 2, kind, 128),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    step = alignment or 32
    return head + b"\0" * (-len(head) % step)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for part in (1, 2):
        (folder / f"model-{part:05}-of-00002.safetensors").write_bytes(safetensors(100 * part))
    weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return folder


async def examine(path: Path) -> ModelReport:
    return await examine_model(LocalMachine(), str(path))


async def test_whole_model(model: Path) -> None:
    report = await examine(model)

    assert (report.problems, report.unsure, report.files) == ([], [], 2)
    assert report.bytes == sum(path.stat().st_size for path in model.glob("*.safetensors"))


async def test_shard_that_is_gone_cut_short_or_too_long(model: Path) -> None:
    second = model / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()

    second.write_bytes(whole[:-1])
    assert (await examine(model)).problems == [f"{second} has {len(whole) - 1:,} of {len(whole):,} bytes"]
    second.write_bytes(whole + b"x")
    assert (await examine(model)).problems == [f"{second} has {len(whole) + 1:,} of {len(whole):,} bytes"]
    second.unlink()
    assert (await examine(model)).problems == [f"{second} is not there"]
    second.symlink_to(model / "gone")
    assert (await examine(model)).problems == [f"{second} is not there"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no whole header"),
        (b"\0" * 400, "no list of tensors"),
        (struct.pack("<Q", 1 << 40) + b"{}", "no whole header"),
        (struct.pack("<Q", 2) + b"[]", "no list of tensors"),
        (struct.pack("<Q", 13) + b'{"w":{"x":1}}', "no list of tensors"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git-lfs pointer"),
    ],
)
async def test_damaged_shard(model: Path, content: bytes, words: str) -> None:
    (model / "model-00001-of-00002.safetensors").write_bytes(content)

    (problem,) = (await examine(model)).problems

    assert words in problem


async def test_split_model_without_its_index_still_misses_a_shard(model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()
    (model / "model-00001-of-00002.safetensors").unlink()

    assert (await examine(model)).problems == [f"{model}/model-00001-of-00002.safetensors is not there"]


@pytest.mark.parametrize("text", ["", "{", '{"weight_map": {}}', "[]"])
async def test_index_that_is_cut_short(model: Path, text: str) -> None:
    (model / "model.safetensors.index.json").write_text(text)

    assert "names no weights" in (await examine(model)).problems[0]


async def test_folder_that_is_no_model(tmp_path: Path, model: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (await examine(tmp_path / "empty")).problems == [
        f"{tmp_path}/empty/config.json is not there",
    ]
    (tmp_path / "empty/config.json").write_text("{}")
    assert (await examine(tmp_path / "empty")).problems == [f"{tmp_path}/empty has no weights"]
    (tmp_path / "empty/pytorch_model.bin").write_bytes(b"x")
    assert "does not tell its size" in (await examine(tmp_path / "empty")).unsure[0]
    (model / "config.json").write_text("{")
    assert "no JSON object" in (await examine(model)).problems[0]


async def test_paths_and_names(tmp_path: Path) -> None:
    assert (await examine(tmp_path / "gone")).problems == [f"{tmp_path}/gone is not there"]
    assert is_hub_name("Qwen/Qwen3-0.6B")
    for path in ("/dev/shm/model", "./a/b", "a/b/c", "model", "~/model", "../model"):
        assert not is_hub_name(path)
    (tmp_path / "weights.xyz").write_text("")
    assert "neither a folder nor a GGUF file" in (await examine(tmp_path / "weights.xyz")).unsure[0]


async def test_gguf_by_its_own_header(tmp_path: Path) -> None:
    """The second tensor, 64 x 2 elements of Q8_0, ends at 128 + 128 / 32 * 34 = 264."""
    path = tmp_path / "model.gguf"
    header = gguf()
    path.write_bytes(header + b"\0" * 264)
    assert (await examine(path)).problems == []

    path.write_bytes(header + b"\0" * 263)
    assert (await examine(path)).problems == [f"{path} has {len(header) + 263:,} of {len(header) + 264:,} bytes"]

    path.write_bytes(header[:60])
    assert "ends within its header" in (await examine(path)).problems[0]

    path.write_bytes(b"GGML" + header[4:])
    assert "does not begin with GGUF" in (await examine(path)).problems[0]


async def test_real_gguf_whole_and_one_byte_short(tmp_path: Path) -> None:
    real = Path(__file__).parents[1] / "fixtures/models/tinypy-draft.gguf"
    assert (await examine(real)).problems == []

    short = tmp_path / "short.gguf"
    short.write_bytes(real.read_bytes()[:-1])

    assert "1,479,647 of 1,479,648 bytes" in (await examine(short)).problems[0]


async def test_gguf_alignment_is_32_unless_it_says_otherwise() -> None:
    for alignment in (None, 4096):
        header = gguf(alignment=alignment)

        async def read_at(offset: int, length: int, header: bytes = header) -> bytes:
            return header[offset : offset + length]

        assert (await gguf_size(read_at)).at_least == len(header) + 264


async def test_gguf_tensor_type_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(kind=200) + b"\0" * 128)

    report = await examine(path)

    assert report.problems == []
    assert "tensor type" in report.unsure[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "absurdly long"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<I", 99), "unknown type 99"),
    ],
)
async def test_gguf_that_is_none(content: bytes, words: str) -> None:
    async def read_at(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    with pytest.raises(GgufError, match=words):
        await gguf_size(read_at)


async def test_all_parts_of_a_split_gguf_are_looked_at(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(gguf() + b"\0" * 264)

    assert (await examine(first)).problems == [f"{tmp_path}/m-00002-of-00002.gguf is not there"]
