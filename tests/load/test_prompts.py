import json
from pathlib import Path
from typing import Any

import pytest

import ddconsole
from ddconsole.load.prompts import WorkloadTextError, WorkloadTexts, read_workload_texts
from ddconsole.load.task import Prompt, Script, Turn

SHIPPED = Path(ddconsole.__file__).parent.parent / "plans" / "workloads"


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_the_shipped_sets_and_scripts_are_read_and_come_back_from_json() -> None:
    texts = read_workload_texts(SHIPPED, {"five", "cli-calculator", "data-pipeline"})
    assert [prompt.name for prompt in texts.prompts["five"]] == ["coding", "reasoning", "explanation", "data", "story"]
    assert all(len(prompt.text.split()) > 100 for prompt in texts.prompts["five"])
    assert set(texts.scripts) == {"cli-calculator", "data-pipeline"}
    for name, script in texts.scripts.items():
        assert script.name == name
        assert script.system
        assert len(script.turns) == 5
        assert all(turn.user.strip() and turn.assistant.strip() for turn in script.turns)
    assert WorkloadTexts.from_json(json.loads(json.dumps(texts.to_json()))) == texts


def test_a_script_may_leave_out_answers_and_system_and_write_texts_as_lines(tmp_path: Path) -> None:
    write(tmp_path / "talk.json", {"turns": [{"user": ["a", "b"]}, {"name": "end", "user": "c", "assistant": "d"}]})
    expected = Script("talk", "", (Turn("1", "a\nb", ""), Turn("end", "c", "d")))
    assert read_workload_texts(tmp_path, {"talk"}).scripts == {"talk": expected}


def test_a_set_of_the_operators_may_be_json_or_json_lines_anywhere(tmp_path: Path) -> None:
    listed = write(tmp_path / "mine.json", ["one", {"name": "b", "prompt": "two"}])
    lines = tmp_path / "mine.jsonl"
    lines.write_text('{"text": "three"}\n\n"four"\n')
    texts = read_workload_texts(SHIPPED, {str(listed), str(lines)})
    assert texts.prompts[str(listed)] == (Prompt("1", "one"), Prompt("b", "two"))
    assert texts.prompts[str(lines)] == (Prompt("1", "three"), Prompt("2", "four"))


def test_a_relative_path_is_looked_for_beside_the_sets_and_then_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, working = tmp_path / "beside", tmp_path / "working"
    beside.mkdir()
    working.mkdir()
    monkeypatch.chdir(working)
    write(working / "x.json", ["of the working folder"])
    assert read_workload_texts(beside, {"x.json"}).prompts["x.json"][0].text == "of the working folder"
    write(beside / "x.json", ["beside"])
    assert read_workload_texts(beside, {"x.json"}).prompts["x.json"][0].text == "beside"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"prompts": [', r"bad\.json:1:14: not JSON"),
        ('{\n  "prompts": ["a",\n}', r"bad\.json:3:1: not JSON"),
        ("{}", r"bad\.json: no prompts"),
        ("[]", r"bad\.json: no prompts"),
        ('["a", 5]', "prompt 2 is neither a text"),
        ('["a", "  "]', "prompt 2, `text` is not a text"),
        ('[{"text": ["a", 1]}]', "prompt 1, `text` is not a text"),
        ('[{"name": 5, "text": "a"}]', "prompt 1 has a `name` that is not a text"),
        ('[{"name": "x", "text": "a"}, {"name": "x", "text": "b"}]', "two prompts are named 'x'"),
        ('{"turns": []}', "`turns` is not a list with at least one turn"),
        ('{"turns": ["a"]}', "turn 1 is not an object"),
        ('{"turns": [{"assistant": "a"}]}', "turn 1, `user` is not a text"),
        ('{"turns": [{"user": "a", "assistant": 5}]}', "turn 1, `assistant` is not a text"),
        ('{"system": 5, "turns": [{"user": "a"}]}', "`system` is not a text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(WorkloadTextError, match=said):
        read_workload_texts(tmp_path, {"bad"})


def test_a_broken_line_of_json_lines_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('"one"\n\n{"text": \n')
    with pytest.raises(WorkloadTextError, match=r"bad\.jsonl:3:"):
        read_workload_texts(tmp_path, {"bad.jsonl"})


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    write(tmp_path / "five.json", ["a"])
    with pytest.raises(WorkloadTextError, match="no prompt set or script 'fife' → there are: five"):
        read_workload_texts(tmp_path, {"fife"})
    with pytest.raises(WorkloadTextError, match=r"sub/x\.json: no such file"):
        read_workload_texts(tmp_path, {"sub/x.json"})


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b'["ab\xff"]')
    with pytest.raises(WorkloadTextError, match="byte 4 is not UTF-8"):
        read_workload_texts(tmp_path, {"bad"})
