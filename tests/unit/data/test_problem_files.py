"""mortal_steps.data: problems on disk, read one by one, linked into runs."""

import json
import pickle
import random
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from datasets import Dataset
from datasets.arrow_writer import ArrowWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from mortal_steps.config import DataConfig
from mortal_steps.data.problem_files import (
    ROWS_PER_BATCH,
    ProblemFile,
    Texts,
    check_problem_file,
    dataset_fingerprint,
    keep_problems,
    select,
    write_problems,
    write_texts,
)
from mortal_steps.data.problems import get_batch, read_problems
from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem
from tests.support.refused import refused
from tests.support.rows import write_lines

MANY = 3 * ROWS_PER_BATCH + 7
"""Rows of several batches."""

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
    write_problems(Path("p.arrow"), problems)
    return ProblemFile(Path("p.arrow"))


# --- the file -------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(PROMPTS, VALUES, st.floats(allow_nan=False, allow_infinity=False)), min_size=1
    )
)
@settings(max_examples=50)
def test_whatever_json_carries_comes_back_as_it_was(rows) -> None:
    path = Path("drawn.arrow")
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
    assert found.fingerprint == dataset_fingerprint(problems)


def test_single_rows_slices_and_selections_are_those_of_a_list() -> None:
    problems = many()
    found = written(problems)
    assert len(found) == MANY
    for row in (0, ROWS_PER_BATCH - 1, ROWS_PER_BATCH, MANY - 1, -1, -MANY):
        assert found[row] == problems[row]
    assert found[ROWS_PER_BATCH - 2 : ROWS_PER_BATCH + 2] == problems[998:1002]
    for row in (MANY, -MANY - 1):
        with pytest.raises(IndexError):
            found[row]
    rows = array("L", sorted(random.Random(0).sample(range(MANY), 50)))
    chosen = select(found, rows)
    expected = [problems[row] for row in rows]
    assert (list(chosen), len(chosen), chosen[7]) == (expected, 50, expected[7])
    assert dataset_fingerprint(chosen) == dataset_fingerprint(expected)
    again = select(chosen, array("L", [1, 3]))
    assert list(again) == [expected[1], expected[3]]
    assert list(pickle.loads(pickle.dumps(again))) == list(again)


def test_a_column_that_comes_late_is_none_before(tmp_path: Path) -> None:
    source = write_lines(
        "late.jsonl",
        [*({"prompt": f"p{row}"} for row in range(2000)), {"prompt": "z", "answer": 1}],
    )
    train = read_problems(DataConfig(source=source), 0, Scratch()).train
    assert train[0].columns == {"answer": None}
    assert train[2000].columns == {"answer": 1}
    assert train.fingerprint == dataset_fingerprint(list(train))


def test_datasets_opens_it() -> None:
    found = written(many())
    table = Dataset.from_file(str(found.path))
    assert (len(table), table[MANY - 1]["prompt"]) == (MANY, f'"p{MANY - 1}="')
    assert json.loads(table[5]["columns"]) == {"answer": 5, "level": None}


def test_a_file_that_is_none_is_named() -> None:
    with refused(CorruptFileError, "nowhere.arrow"):
        len(ProblemFile(Path("nowhere.arrow")))
    Path("text.arrow").write_text("text")
    with refused(CorruptFileError, "text.arrow"):
        len(ProblemFile(Path("text.arrow")))
    with ArrowWriter(path="other.arrow") as writer:
        writer.write({"prompt": "a"})
        writer.finalize()
    with refused(CorruptFileError, "other.arrow"):
        len(ProblemFile(Path("other.arrow")))


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
    with refused(CorruptFileError, "train.arrow", "damaged"):
        check_problem_file(store, ref)
    kept.unlink()
    with refused(CorruptFileError, "train.arrow", "missing"):
        check_problem_file(store, ref)


def test_a_writer_that_fails_leaves_nothing() -> None:
    def rows() -> Iterator[Texts]:
        yield "train-0", '"a"', "{}"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_texts(Path("half.arrow"), rows())
    assert not list(Path().glob("*half*"))
