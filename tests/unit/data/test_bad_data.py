"""mortal_steps.data: what a bad dataset is told."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from mortal_steps.config import DataConfig
from mortal_steps.data.sources import read_rows
from mortal_steps.errors import DataError
from tests.support.rows import load, write_lines


def rows_file(*rows: Any) -> dict[str, Any]:
    return {"source": write_lines("rows.jsonl", list(rows))}


def text_file(name: str, text: str) -> dict[str, Any]:
    Path(name).write_text(text)
    return {"source": name}


def bytes_table() -> dict[str, Any]:
    Dataset.from_list([{"prompt": "a", "blob": b"x"}]).save_to_disk("table")
    return {"source": "table"}


def empty_folder() -> dict[str, Any]:
    Path("empty").mkdir()
    return {"source": "empty"}


def folder_with(name: str, text: str) -> dict[str, Any]:
    """A file that is broken, beside one that is not."""
    Path("several").mkdir()
    Path("several", f"a.{name.rpartition('.')[2]}").write_text('{"prompt": "a"}')
    Path("several", name).write_text(text)
    return {"source": "several"}


def two_splits() -> dict[str, Any]:
    saved = DatasetDict({name: Dataset.from_list([{"prompt": name}]) for name in ("train", "test")})
    saved.save_to_disk("splits")
    return {"source": "splits"}


LETTERS = {"source": "letters.jsonl"}

BAD = {
    "nothing named": (dict, {}, ["data.source is not set", "reasoning_gym:TASK"]),
    "no such file": (
        dict,
        {"source": "lettres.jsonl"},
        ["data.source = 'lettres.jsonl'", "no such file", "did you mean letters.jsonl?"],
    ),
    "no such folder": (dict, {"source": "./nowhere"}, ["'./nowhere'", "no such file or folder"]),
    "no such eval file": (
        dict,
        {**LETTERS, "eval_source": "x.jsonl"},
        ["data.eval_source = 'x.jsonl'", "no such file"],
    ),
    "offline hub": (
        dict,
        {"source": "someone/something"},
        ["'someone/something'", "local cache", "the hub cannot be reached"],
    ),
    "unknown task": (
        dict,
        {"source": "reasoning_gym:spell_backwards"},
        ["no task 'spell_backwards'", "did you mean spell_backward?"],
    ),
    "unknown task option": (
        dict,
        {"source": "reasoning_gym:spell_backward", "options": {"min_len": 3}},
        ["data.options = {'min_len': 3}", "spell_backward", "min_len"],
    ),
    "bad task option": (
        dict,
        {"source": "reasoning_gym:spell_backward", "options": {"min_word_len": 9, "size": "x"}},
        ["data.options", "refuses them for spell_backward"],
    ),
    "options without task": (
        dict,
        {**LETTERS, "options": {"size": 3}},
        ["data.options = {'size': 3}", "only a reasoning_gym:TASK source"],
    ),
    "split of a file": (
        dict,
        {**LETTERS, "split": "test"},
        ["data.split = 'test'", "single table", "leave it out"],
    ),
    "eval split of a file": (
        dict,
        {**LETTERS, "eval_split": "test"},
        ["data.eval_split = 'test'", "single table"],
    ),
    "config of a task": (
        dict,
        {"source": "reasoning_gym:spell_backward", "config": "main"},
        ["data.config = 'main'", "single table"],
    ),
    "unknown saved split": (
        two_splits,
        {"eval_split": "tset"},
        ["data.eval_split = 'tset'", "only train, test"],
    ),
    "empty folder": (empty_folder, {}, ["data.source = 'empty'", "cannot be read"]),
    "misspelled prompt column": (
        dict,
        {**LETTERS, "prompt_column": "promt"},
        ["data.prompt_column = 'promt'", "did you mean 'prompt'?", "prompt, answer"],
    ),
    "two prompt columns": (
        lambda: rows_file({"q": "a", "prompt": "b"}),
        {"prompt_column": "q"},
        ["data.prompt_column = 'q'", "a column 'prompt' besides"],
    ),
    "a column TRL has": (
        lambda: rows_file({"prompt": "a", "completions": "b"}),
        {},
        ["'completions'", "rename it"],
    ),
    "no rows": (rows_file, {}, ["data.source = 'rows.jsonl'", "no rows"]),
    "empty prompt": (
        lambda: rows_file({"prompt": "a"}, {"prompt": " "}),
        {},
        ["row 1, column 'prompt'", "the prompt is empty"],
    ),
    "no messages": (lambda: rows_file({"prompt": []}), {}, ["row 0", "no messages"]),
    "empty messages": (
        lambda: rows_file({"prompt": [{"role": "user", "content": ""}]}),
        {},
        ["row 0", "every message is empty"],
    ),
    "number as prompt": (
        lambda: rows_file({"prompt": 3}),
        {},
        ["row 0", "3 is neither text nor a list of chat messages"],
    ),
    "missing prompt": (
        lambda: rows_file({"prompt": "a"}, {"answer": 1}),
        {},
        ["row 1", "None is neither text"],
    ),
    "no message": (
        lambda: rows_file({"prompt": ["hello"]}),
        {},
        ["'hello' is no chat message", '"role"'],
    ),
    "picture in a message": (
        lambda: rows_file({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}),
        {},
        ["row 0", "{'type': 'image'} is no text", "text alone"],
    ),
    "mixed prompts": (
        lambda: rows_file({"prompt": "a"}, {"prompt": [{"role": "user", "content": "a"}]}),
        {},
        ["row 1", "both text and chat messages"],
    ),
    "infinity": (lambda: rows_file({"prompt": "a", "x": float("inf")}), {}, ["column 'x'", "inf"]),
    "half a character": (
        lambda: rows_file({"prompt": "a", "x": "\ud800"}),
        {},
        ["column 'x'", "no valid Unicode"],
    ),
    "bytes": (bytes_table, {}, ["column 'blob'", "a bytes, and MORTAL trains on text alone"]),
    "broken line": (
        lambda: text_file("a.jsonl", '{"prompt": "a"}\n{oops\n'),
        {},
        ["'a.jsonl', line 2 is not JSON"],
    ),
    "line that was cut": (
        lambda: text_file("a.jsonl", '{"prompt": "a"}\n{"prompt": \n'),
        {},
        ["'a.jsonl', line 2 is not JSON: Expecting value at column 12"],
    ),
    "row that is none": (
        lambda: text_file("a.jsonl", '{"prompt": "a"}\n[1]\n'),
        {},
        ["line 2: [1] is no row"],
    ),
    "json that is no list": (
        lambda: text_file("a.json", '{"prompt": "a"}'),
        {},
        ["'a.json'", "holds a dict, not a list of rows"],
    ),
    "lines in json": (
        lambda: text_file("a.json", '{"prompt": "a"}\n{"prompt": "b"}'),
        {},
        ["'a.json' is not JSON", ".jsonl"],
    ),
    "not utf-8": (
        lambda: {"source": str(Path("a.jsonl").write_bytes(b"\xff\xfe") and "a.jsonl")},
        {},
        ["'a.jsonl' is no text in UTF-8", "0xff", "iconv"],
    ),
    "broken csv": (
        lambda: text_file("a.csv", 'a,b\n1\n"'),
        {},
        ["'a.csv': cannot be read"],
    ),
    "two columns of one name": (
        lambda: text_file("a.csv", "prompt,answer,answer\na,1,2\n"),
        {},
        ["'a.csv'", "2 columns 'answer'"],
    ),
    "a key twice": (
        lambda: text_file("a.jsonl", '{"prompt": "a", "x": {"y": 1, "y": 2}}\n'),
        {},
        ["'a.jsonl', line 1", "'y' is there twice"],
    ),
    "deep columns": (
        lambda: text_file("a.jsonl", '{"prompt": "a", "x": ' + "[" * 300 + "]" * 300 + "}"),
        {},
        ["row 0, column 'x'", "more than 100 deep"],
    ),
    "bottomless columns": (
        lambda: text_file("a.jsonl", '{"prompt": "a", "x": ' + "[" * 10**5 + "]" * 10**5 + "}"),
        {},
        ["'a.jsonl', line 1"],
    ),
    "broken parquet": (
        lambda: text_file("a.parquet", "x"),
        {},
        ["'a.parquet': cannot be read"],
    ),
    "a broken file of several": (
        lambda: folder_with("b.jsonl", '{"prompt": '),
        {},
        ["data.source = 'several'", "JSON parse error: Invalid value"],
    ),
    "other columns in one file of several": (
        lambda: folder_with("b.jsonl", '{"prompt": "a", "other": 3}'),
        {},
        ["data.source = 'several'", "column names don't match"],
    ),
    "other file": (lambda: text_file("a.txt", "x"), {}, ["'a.txt'", ".jsonl, .json"]),
    "all held out": (
        dict,
        {**LETTERS, "eval_samples": 10},
        ["data.eval_samples = 10 leaves no training rows", "has 10"],
    ),
    "evaluation on the training rows": (
        dict,
        {**LETTERS, "eval_source": "letters.jsonl"},
        ["the prompt of every row is also held out"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name: str, letters: str) -> None:
    prepare, keys, expected = BAD[name]
    with pytest.raises(DataError) as caught:
        load(**{**prepare(), **keys})
    for part in expected:
        assert part in str(caught.value)


def test_the_split_of_the_training_source_says_nothing_about_a_file_to_evaluate_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = rows_file({"prompt": "a"})["source"]
    config = DataConfig(source="a/dataset", config="main", split="test", eval_source=table)
    assert list(read_rows(config, 0, held_out="")) == [{"prompt": "a"}]
