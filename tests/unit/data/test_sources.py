"""mortal_steps.data: every source gives the same problems."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset, DatasetDict

from mortal_steps.config import DataConfig
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import DataError
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.refused import refused
from tests.support.rows import SPELL, load, write_lines


def save_json(rows: list[dict[str, Any]]) -> str:
    Path("rows.json").write_text(json.dumps(rows))
    return "rows.json"


def save_csv(rows: list[dict[str, Any]]) -> str:
    lines = ["prompt,answer", *(f"{row['prompt']},{row['answer']}" for row in rows)]
    Path("rows.csv").write_text("\n".join(lines))
    return "rows.csv"


def save_parquet(rows: list[dict[str, Any]]) -> str:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "rows.parquet")
    return "rows.parquet"


def save_table(rows: list[dict[str, Any]]) -> str:
    Dataset.from_list(rows).save_to_disk("table")
    return "table"


def save_splits(rows: list[dict[str, Any]]) -> str:
    DatasetDict({"train": Dataset.from_list(rows)}).save_to_disk("splits")
    return "splits"


def save_folder(rows: list[dict[str, Any]]) -> str:
    Path("folder").mkdir()
    write_lines("folder/train.jsonl", rows)
    return "folder"


@pytest.mark.parametrize(
    "save", [save_json, save_csv, save_parquet, save_table, save_splits, save_folder]
)
def test_every_local_source_gives_the_same_problems(
    save: Callable[[list[dict[str, Any]]], str],
) -> None:
    rows = [{"prompt": "ab=", "answer": "ba"}, {"prompt": "cd=", "answer": "dc"}]
    train, held_out = load(source=save(rows))
    assert train == [
        Problem(id="train-0", prompt="ab=", columns={"answer": "ba"}),
        Problem(id="train-1", prompt="cd=", columns={"answer": "dc"}),
    ]
    assert held_out == []


def test_lines_may_be_padded_empty_and_end_in_any_way() -> None:
    lines = ['{"prompt": "a"}\r\n', "\n", '  {"prompt": "b"} \t\n', " \r\n", '{"prompt": "c"}']
    Path("a.jsonl").write_text("".join(lines), newline="")
    assert [problem.prompt for problem in load(source="a.jsonl")[0]] == ["a", "b", "c"]


def test_a_line_beyond_those_asked_for_may_be_broken() -> None:
    Path("a.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt"')
    assert len(load(source="a.jsonl", max_samples=2)[0]) == 2


def test_prompt_column_is_renamed_and_other_columns_kept() -> None:
    source = write_lines("a.jsonl", [{"question": "1+1", "answer": 2, "level": None}])
    train, _ = load(source=source, prompt_column="question")
    assert train == [Problem(id="train-0", prompt="1+1", columns={"answer": 2, "level": None})]


def test_a_key_missing_from_a_row_is_none() -> None:
    source = write_lines("a.jsonl", [{"prompt": "a"}, {"prompt": "b", "answer": 1}])
    assert [problem.columns for problem in load(source=source)[0]] == [
        {"answer": None},
        {"answer": 1},
    ]


@pytest.mark.parametrize("name", ["rows.csv", "folder/train.csv"])
def test_csv_columns_are_text_as_they_stand_there(name: str) -> None:
    Path("folder").mkdir()
    Path(name).write_text('prompt,answer,x\n"a\nb",007,true\nc,1e5,NA\nd,,2020-01-01\n')
    train, _ = load(source=name.partition("/")[0])
    assert [(problem.prompt, *problem.columns.values()) for problem in train] == [
        ("a\nb", "007", "true"),
        ("c", "1e5", "NA"),
        ("d", "", "2020-01-01"),
    ]


def test_chat_prompts() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    train, _ = load(source=write_lines("a.jsonl", [{"prompt": chat}]))
    assert train[0].prompt == chat


def test_reasoning_gym_rows_carry_what_their_verifier_needs() -> None:
    train, _ = load(**SPELL)
    assert len(train) == 300
    assert set(train[0].columns) == {
        "answer",
        "metadata",
        "source_dataset",
        "task_options",
        "entry",
    }
    assert train[0].columns["source_dataset"] == "spell_backward"
    assert train[0].columns["task_options"] == {"min_word_len": 3, "max_word_len": 3}
    assert train[0].columns["answer"] == train[0].prompt[-3:][::-1]


def test_reasoning_gym_draws_from_the_runs_seed_unless_it_has_its_own() -> None:
    config = DataConfig(**SPELL)
    assert load_problems(config, 1) != load_problems(config, 2)
    assert load_problems(config, 1) == load_problems(config, 1)
    own = DataConfig(source=SPELL["source"], options={**SPELL["options"], "seed": 5})
    assert load_problems(own, 1) == load_problems(own, 2) == load_problems(config, 5)


def test_values_are_what_json_can_carry() -> None:
    day = datetime.datetime(2026, 1, 31, 12, 30)
    rows = [{"prompt": "a", "when": day, "missing": float("nan"), "nested": {"x": [1, 2]}}]
    Dataset.from_list(rows).save_to_disk("table")
    train, _ = load(source="table")
    assert train[0].columns == {
        "when": "2026-01-31T12:30:00",
        "missing": None,
        "nested": {"x": [1, 2]},
    }


def test_problems_survive_the_store(tmp_path: Path) -> None:
    train, _ = load_problems(
        DataConfig(source="reasoning_gym:knights_knaves", options={"size": 5}), 0
    )
    store = RunStore(tmp_path)
    restored = store.read_record(store.write_record("p.json", train, list[Problem]), list[Problem])
    assert restored == train
    assert dataset_fingerprint(restored) == dataset_fingerprint(train)


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_a_byte_order_mark_is_no_part_of_the_rows(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "ä", "answer": "1"}, {"prompt": "b", "answer": "2"}]
    write_lines("rows.jsonl", rows)
    save_json(rows)
    save_csv(rows)
    path = Path(f"rows.{kind}")
    plain = load_problems(DataConfig(source=str(path)), 1)[0]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = load_problems(DataConfig(source=str(path)), 1)[0]
    assert [(p.prompt, str(p.columns["answer"])) for p in marked] == [("ä", "1"), ("b", "2")]
    assert marked == plain


@pytest.mark.parametrize("name", ["rows[12]", "rows*", "r?ws"])
def test_no_folder_is_read_in_place_of_the_one_that_is_named(name: str, tmp_path: Path) -> None:
    """`datasets` takes the folder's name for a pattern."""
    for folder in (name, "rows1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.jsonl").write_text(json.dumps({"prompt": folder}))
    with refused(DataError, "rename the folder, or name a file in it", name):
        load_problems(DataConfig(source=str(tmp_path / name)), 0)
    file = DataConfig(source=str(tmp_path / name / "train.jsonl"))
    assert [problem.prompt for problem in load_problems(file, 0)[0]] == [name]
    there = DataConfig(source=str(tmp_path / "rows1"))
    assert [problem.prompt for problem in load_problems(there, 0)[0]] == ["rows1"]


@pytest.mark.parametrize("first", [True, False])
def test_a_row_of_a_csv_file_may_be_long(first: bool, tmp_path: Path) -> None:
    long, short = "x" * 5_000_000, "y"
    rows = [long, short] if first else [short, long]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["prompt", *rows]))
    assert [each.prompt for each in load_problems(DataConfig(source=str(path)), 0)[0]] == rows
    path.write_text("\n".join(["prompt", short, 8 * long, short]))
    with refused(DataError, "a row is longer than 8,388,608 bytes", "write the rows as .jsonl"):
        load_problems(DataConfig(source=str(path)), 0)
