"""mortal_steps.data: every source, what is held out, and what a bad dataset is told."""

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from mortal_steps.config import DataConfig
from mortal_steps.data import dataset_fingerprint, get_batch, load_problems
from mortal_steps.errors import DataError
from mortal_steps.store import RunStore
from mortal_steps.types import Problem

SPELL = {
    "source": "reasoning_gym:spell_backward",
    "options": {"size": 300, "min_word_len": 3, "max_word_len": 3},
}


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative sources start in an empty folder, and nothing asks the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def letters(tmp_path: Path) -> str:
    """Ten rows, `p0=` to `p9=`."""
    return write_lines("letters.jsonl", [{"prompt": f"p{i}=", "answer": i} for i in range(10)])


def write_lines(name: str, rows: list[Any]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def load(**keys: Any) -> tuple[list[Problem], list[Problem]]:
    return load_problems(DataConfig(**keys), seed=0)


def prompts(problems: list[Problem]) -> list[Any]:
    return [problem.prompt for problem in problems]


# --- sources --------------------------------------------------------------------------------------


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


def test_importing_needs_neither_torch_nor_datasets() -> None:
    code = "import sys, mortal_steps.data; print({'torch', 'datasets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- what is held out -----------------------------------------------------------------------------


def test_max_samples_takes_the_first_rows(letters: str) -> None:
    assert prompts(load(source=letters, max_samples=2)[0]) == ["p0=", "p1="]


def test_eval_samples_are_held_out_of_the_source(letters: str) -> None:
    train, held_out = load(source=letters, eval_samples=3)
    assert sorted(prompts(train) + prompts(held_out)) == [f"p{i}=" for i in range(10)]
    assert len(held_out) == 3
    assert all(problem.id == f"eval-{problem.columns['answer']}" for problem in held_out)
    assert all(problem.id == f"train-{problem.columns['answer']}" for problem in train)
    # another seed is another run on the same split
    assert load_problems(DataConfig(source=letters, eval_samples=3), 1) == (train, held_out)


def test_held_out_words_are_never_trained_on() -> None:
    train, held_out = load(**SPELL, eval_samples=50)
    assert len(held_out) == 50
    assert not set(prompts(train)) & set(prompts(held_out))
    assert len(train) < 250  # the generator repeats words, and the held-out ones' went with them


def test_an_evaluation_source_may_repeat_training_prompts(letters: str) -> None:
    other = write_lines("eval.jsonl", [{"prompt": "p3="}, {"prompt": "new="}, {"prompt": "p4="}])
    train, held_out = load(source=letters, eval_source=other, eval_samples=2)
    assert prompts(held_out) == ["p3=", "new="]
    assert "p3=" not in prompts(train)
    assert len(train) == 9
    assert len(load(source=letters, eval_source=other)[1]) == 3


def test_an_evaluation_split() -> None:
    Path("folder").mkdir()
    write_lines("folder/train.jsonl", [{"prompt": "a"}, {"prompt": "b"}])
    write_lines("folder/test.jsonl", [{"prompt": "b"}])
    train, held_out = load(source="folder", eval_split="test")
    assert (prompts(train), prompts(held_out)) == (["a"], ["b"])


def test_the_same_task_as_evaluation_source_draws_other_rows() -> None:
    train, held_out = load(**SPELL, eval_source=SPELL["source"], eval_samples=20)
    assert len(held_out) == 20
    assert not set(prompts(train)) & set(prompts(held_out))


# --- fingerprint and batches ----------------------------------------------------------------------


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.data())
@settings(max_examples=25, deadline=None)
def test_fingerprint_tells_any_change(texts: list[str], data: st.DataObject) -> None:
    rows = [Problem(id=f"train-{i}", prompt=text) for i, text in enumerate(texts)]
    index = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows]
    changed[index] = Problem(id=rows[index].id, prompt=rows[index].prompt, columns={"x": 1})
    assert dataset_fingerprint(rows) == dataset_fingerprint(list(rows))
    assert dataset_fingerprint(rows) != dataset_fingerprint(changed)
    assert dataset_fingerprint(rows) != dataset_fingerprint(rows[:-1])


def test_an_epoch_of_batches_is_every_problem_once(letters: str) -> None:
    train, _ = load(source=letters)
    config = DataConfig(source=letters)
    epoch = [
        problem
        for step in range(5)
        for problem in get_batch(train, config, batch_size=2, step=step, seed=3)
    ]
    assert sorted(epoch, key=lambda problem: problem.id) == train
    assert epoch != train
    in_order = get_batch(
        train, DataConfig(source=letters, shuffle=False), batch_size=4, step=1, seed=3
    )
    assert in_order == train[4:8]


# --- bad input ------------------------------------------------------------------------------------


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
    "bytes": (bytes_table, {}, ["column 'blob'", "a bytes cannot be carried as JSON"]),
    "broken line": (
        lambda: text_file("a.jsonl", '{"prompt": "a"}\n{oops\n'),
        {},
        ["'a.jsonl', line 2 is not JSON"],
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
        ["'a.jsonl': cannot be read"],
    ),
    "broken csv": (
        lambda: text_file("a.csv", 'a,b\n1\n"'),
        {},
        ["'a.csv': cannot be read"],
    ),
    "broken parquet": (
        lambda: text_file("a.parquet", "x"),
        {},
        ["'a.parquet': cannot be read"],
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
        ["every prompt is also held out"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name: str, letters: str) -> None:
    prepare, keys, expected = BAD[name]
    with pytest.raises(DataError) as caught:
        load(**{**prepare(), **keys})
    for part in expected:
        assert part in str(caught.value)
