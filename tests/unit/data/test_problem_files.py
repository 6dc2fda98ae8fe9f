"""mortal_steps.data: problems on disk, read one by one, linked into runs."""

import hashlib
import json
import pickle
import random
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas
import pytest
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from mortal_steps.config import DataConfig
from mortal_steps.data import dataset_fingerprint, get_batch
from mortal_steps.data.kept import (
    check_problem_file,
    keep_problems,
)
from mortal_steps.data.problem_files import ProblemFile, write_problems
from mortal_steps.data.problem_writer import ROWS_PER_GROUP, ProblemWriter
from mortal_steps.data.problems import read_problems
from mortal_steps.errors import CorruptFileError, NewerFormatError
from mortal_steps.store import FORMAT, RunStore
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem
from tests.support.rows import write_lines

MANY = 3 * ROWS_PER_GROUP + 7
"""Rows of several groups."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
PROMPTS = st.text(min_size=1).filter(str.strip) | st.just([{"role": "user", "content": "ä"}])


def many() -> list[Problem]:
    return [
        Problem(id=f"train-{row}", prompt=f"p{row}=", columns={"answer": row, "level": None})
        for row in range(MANY)
    ]


def written(problems: list[Problem]) -> ProblemFile:
    write_problems(Path("p.parquet"), problems)
    return ProblemFile(Path("p.parquet"))


def fingerprint_of_format_1(problems: list[Problem]) -> str:
    """What runs begun by older code have in their run.json."""
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.id, problem.prompt, dict(problem.columns)]
        digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


# --- the file -------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(PROMPTS, VALUES, st.floats(allow_nan=False, allow_infinity=False)), min_size=1
    )
)
@settings(max_examples=50, deadline=None)
def test_whatever_json_carries_comes_back_as_it_was(rows) -> None:
    path = Path("drawn.parquet")
    path.unlink(missing_ok=True)
    problems = [
        Problem(id=f"train-{index}", prompt=prompt, columns={"x": value, "y": number})
        for index, (prompt, value, number) in enumerate(rows)
    ]
    write_problems(path, problems)
    found = ProblemFile(path)
    assert list(found) == problems
    assert [found[index] for index in range(len(found))] == problems
    assert list(found.prompts()) == [problem.prompt for problem in problems]
    assert found.fingerprint == fingerprint_of_format_1(problems) == dataset_fingerprint(problems)


def test_columns_keep_their_order_and_the_fingerprint_has_its_own() -> None:
    """Whatever of a row can be taken as it stands in the file, and whatever cannot."""
    values = ["plain", "\x7f", "ä", "{", {"b": 1, "a": [{"d": 1e300, "c": None}]}, 0.1, True, None]
    chat = [{"role": "user", "content": "{"}]
    whole = [
        Problem(id=f"train-{row}", prompt=prompt, columns={"z": value, "b": "\\", "a": row})
        for row, (value, prompt) in enumerate((v, p) for v in values for p in ("p\x7f{=", chat))
    ]
    lacking = [*whole, Problem(id="train-99", prompt="x", columns={"a": 1, "y": 2})]
    for problems, is_whole in ((whole, True), (lacking, False)):
        found = written(problems)
        assert found._is_whole is is_whole
        expected = [
            Problem(
                id=one.id,
                prompt=one.prompt,
                columns={name: one.columns.get(name) for name in found._names},
            )
            for one in problems
        ]
        assert [list(one.columns) for one in found] == [list(found._names)] * len(problems)
        assert list(found._names) == ["z", "b", "a"] + ["y"] * (not is_whole)
        assert found.fingerprint == fingerprint_of_format_1(expected)
        some = found.select(array("L", range(1, len(problems), 2)))
        some.write_to(Path("some.parquet"))
        again = ProblemFile(Path("some.parquet"))
        assert again.fingerprint == some.fingerprint == fingerprint_of_format_1(expected[1::2])
        found.path.unlink()


def test_single_rows_slices_and_selections_are_those_of_a_list() -> None:
    problems = many()
    found = written(problems)
    assert len(found) == MANY
    for row in (0, ROWS_PER_GROUP - 1, ROWS_PER_GROUP, MANY - 1, -1, -MANY):
        assert found[row] == problems[row]
    assert found[ROWS_PER_GROUP - 2 : ROWS_PER_GROUP + 2] == problems[998:1002]
    for row in (MANY, -MANY - 1):
        with pytest.raises(IndexError):
            found[row]
    rows = array("L", sorted(random.Random(0).sample(range(MANY), 50)))
    chosen = found.select(rows)
    expected = [problems[row] for row in rows]
    assert (list(chosen), len(chosen), chosen[7], chosen[-1]) == (
        expected,
        50,
        expected[7],
        expected[-1],
    )
    assert chosen.fingerprint == dataset_fingerprint(expected)
    again = chosen.select(array("L", [1, 3]))
    assert list(again) == [expected[1], expected[3]]
    assert list(pickle.loads(pickle.dumps(again))) == list(again)
    again.write_to(Path("q.parquet"))
    assert list(ProblemFile(Path("q.parquet"))) == list(again)


def test_reading_a_row_decodes_its_group_alone() -> None:
    """The other groups may even be damaged."""
    problems = many()
    found = written(problems)
    size = found.path.stat().st_size
    content = bytearray(found.path.read_bytes())
    position = content.index(b"\x28\xb5\x2f\xfd", size // 2)  # where a compressed page begins
    content[position + 8] ^= 1
    found.path.write_bytes(content)
    assert ProblemFile(found.path)[0] == problems[0]
    with pytest.raises(CorruptFileError, match=r"p\.parquet is damaged"):
        list(ProblemFile(found.path))


def test_rows_of_a_batch_come_in_its_order_and_each_group_is_decoded_once(monkeypatch) -> None:
    problems, decoded, group = many(), [], ProblemFile._group
    monkeypatch.setattr(
        ProblemFile, "_group", lambda self, number: (decoded.append(number), group(self, number))[1]
    )
    found = written(problems)
    rows = [MANY - 1, 5, ROWS_PER_GROUP + 3, 0, 5, MANY - 2]
    assert found.at(rows) == [problems[row] for row in rows]
    assert decoded == [0, 1, 3]
    odd = found.select(array("L", range(1, MANY, 2)))
    assert odd.at([4, 0, 4]) == [problems[9], problems[1], problems[9]]
    assert found.at([]) == []


def test_threads_read_one_file_at_once() -> None:
    """As steps do that overlap: pyarrow's reader is not made for it."""
    problems = [Problem(id=f"train-{n}", prompt=str(n)) for n in range(64)]
    file = written(problems)
    with ThreadPoolExecutor(4) as threads:
        rows = list(threads.map(file.__getitem__, list(range(64)) * 20))
    assert rows == problems * 20


def test_a_column_that_comes_late_is_none_before(tmp_path: Path) -> None:
    source = write_lines(
        "late.jsonl",
        [*({"prompt": f"p{row}"} for row in range(2000)), {"prompt": "z", "answer": 1}],
    )
    train, _ = read_problems(DataConfig(source=source), 0, Scratch())
    assert train[0].columns == {"answer": None}
    assert train[2000].columns == {"answer": 1}
    assert train.fingerprint == fingerprint_of_format_1(list(train))


def test_pandas_and_datasets_open_it() -> None:
    found = written(many())
    frame = pandas.read_parquet(found.path)
    assert list(frame.columns) == ["id", "prompt", "chat", "columns"]
    assert json.loads(frame["columns"][5]) == {"answer": 5, "level": None}
    table = load_dataset("parquet", data_files=str(found.path), split="train", cache_dir="cache")
    assert table[MANY - 1]["prompt"] == f"p{MANY - 1}="


def test_a_file_that_is_none_is_named() -> None:
    with pytest.raises(CorruptFileError, match=r"nowhere\.parquet is missing"):
        len(ProblemFile(Path("nowhere.parquet")))
    Path("text.parquet").write_text("text")
    with pytest.raises(CorruptFileError, match=r"text\.parquet is damaged"):
        len(ProblemFile(Path("text.parquet")))
    pandas.DataFrame({"prompt": ["a"]}).to_parquet("other.parquet")
    with pytest.raises(CorruptFileError, match=r"other\.parquet is damaged"):
        len(ProblemFile(Path("other.parquet")))


def test_a_newer_file_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("mortal_steps.data.problem_writer.FORMAT", FORMAT + 1)
        found = written(many())
    with pytest.raises(NewerFormatError, match=rf"p\.parquet is of format {FORMAT + 1}"):
        len(found)


def test_rows_of_long_prompts_lie_in_smaller_groups() -> None:
    text = "".join(random.Random(0).choices("abcdefgh", k=50_000))
    problems = [Problem(id=f"train-{row}", prompt=text + str(row)) for row in range(300)]
    found = written(problems)
    assert found._file.metadata.num_row_groups == 3
    assert found[250] == problems[250]


# --- the problems of a run ------------------------------------------------------------------------


def test_a_step_reads_the_same_problems_from_a_file_as_from_a_list() -> None:
    problems = many()
    found = written(problems)
    config = DataConfig()
    for step in (0, 1, 400):  # the last one in the second epoch
        batch = get_batch(found, config, batch_size=9, step=step, seed=3)
        assert batch == get_batch(problems, config, batch_size=9, step=step, seed=3)


def test_a_kept_file_is_linked_and_a_changed_one_noticed(tmp_path: Path) -> None:
    store, found = RunStore(tmp_path / "run"), written(many())
    ref, _ = keep_problems(store, found, [])
    kept = store.path(ref.path)
    assert kept.samefile(found.path)
    check_problem_file(store, ref)
    keep_problems(store, many()[:5], [])  # what a kill left without run.json is written over
    assert len(found) == MANY, "the other name of the old file still has it whole"
    with pytest.raises(CorruptFileError, match=r"train\.parquet is damaged"):
        check_problem_file(store, ref)
    kept.unlink()
    with pytest.raises(CorruptFileError, match=r"train\.parquet is missing"):
        check_problem_file(store, ref)


def test_a_writer_that_fails_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), ProblemWriter(Path("half.parquet")) as writer:
        writer.add("train-0", "a", {})
        raise ZeroDivisionError
    assert not list(Path().glob("*half*"))
