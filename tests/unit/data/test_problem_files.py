"""mortal_steps.data: problems on disk, read one by one, linked into runs, shared among them."""

import hashlib
import json
import pickle
import random
import shutil
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas
import pytest
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from mortal_steps.config import DataConfig, RunConfig
from mortal_steps.data import dataset_fingerprint, get_batch, load_problems, shared
from mortal_steps.data.kept import (
    TRAIN_IN_FORMAT_1,
    check_problem_file,
    find_train_problems,
    keep_problems,
    open_problems,
)
from mortal_steps.data.problem_files import ProblemFile, write_problems
from mortal_steps.data.problem_writer import ROWS_PER_GROUP, ProblemWriter
from mortal_steps.data.problems import read_problems
from mortal_steps.data.shared import clean_up, read_or_share
from mortal_steps.data.shared_entries import EntryLock
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


def test_a_run_of_the_first_format_has_its_problems_in_a_record(tmp_path: Path) -> None:
    store, problems = RunStore(tmp_path / "run"), many()
    ref = store.write_record(TRAIN_IN_FORMAT_1, problems, list[Problem])
    check_problem_file(store, ref)
    assert open_problems(store, ref) == find_train_problems(store) == problems


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


# --- shared among runs ----------------------------------------------------------------------------


@pytest.fixture
def large(letters: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A configuration whose ten letters count as a large file."""
    monkeypatch.setattr(shared, "SHARED_FROM", 1)
    return RunConfig(runs_dir="runs", data=DataConfig(source=letters, eval_samples=3))


def read(config: RunConfig) -> tuple[ProblemFile, list[Problem]]:
    Path(config.runs_dir).mkdir(exist_ok=True)
    train, held_out = read_or_share(config, Scratch())
    return train, list(held_out)


def test_a_large_file_is_read_once_for_all_runs(large: RunConfig) -> None:
    first, held_out = read(large)
    stamp = first.path.stat().st_mtime_ns
    again, held_out_again = read(large.model_copy(update={"seed": 5}))
    assert again.path == first.path
    assert again.path.stat().st_mtime_ns == stamp
    assert (list(first), held_out) == (list(again), held_out_again)
    assert (list(first), held_out) == load_problems(large.data, 0)
    assert again.fingerprint == dataset_fingerprint(list(first))
    other = large.model_copy(update={"data": DataConfig(source=large.data.source)})
    assert read(other)[0].path != first.path


def test_a_run_needs_neither_the_large_file_nor_what_is_shared(large: RunConfig) -> None:
    train, held_out = read(large)
    store = RunStore(Path("runs/run"))
    ref, _ = keep_problems(store, train, held_out)
    expected = list(train)
    assert store.path(ref.path).samefile(train.path)
    Path(large.data.source).unlink()
    for path in sorted(Path("runs/.data").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    check_problem_file(store, ref)
    assert list(open_problems(store, ref)) == expected


def test_a_changed_file_is_other_data_and_a_damaged_copy_is_made_again(
    large: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    path = read(large)[0].path
    path.write_bytes(b"damaged")
    mended, _ = read(large)
    assert mended.path == path
    assert len(list(mended)) == 7
    assert "the dataset is read again" in caplog.text
    with Path(large.data.source).open("a") as file:
        file.write('{"prompt": "new=", "answer": 1}\n')
    assert len(read(large)[0]) == 8


def entries() -> list[str]:
    return sorted(path.name for path in Path("runs/.data").iterdir())


def test_what_no_run_links_to_is_removed_when_another_begins(large: RunConfig) -> None:
    train, held_out = read(large)
    store = RunStore(Path("runs/run"))
    keep_problems(store, train, held_out)
    key = train.path.parent.name
    del train
    clean_up(large)
    assert entries() == [f".{key}.lock", key], "a run links to it"
    shutil.rmtree(store.root)
    killed = Path(f"runs/.data/.{key}.1a2b3c4d.partial")
    killed.mkdir()
    clean_up(large)
    assert entries() == []
    assert len(read(large)[0]) == 7, "read again"


def test_what_a_run_begins_with_is_not_removed(large: RunConfig) -> None:
    """Before it has a link: the checks of a start may take minutes."""
    train, _ = read(large)
    again, held_out = read(large)  # shared, so the second one did not wait for the first
    del train
    clean_up(large)
    keep_problems(RunStore(Path("runs/run")), again, held_out)
    assert len(list(again)) == 7


def test_a_run_that_waits_for_a_removal_makes_the_entry_again(large: RunConfig) -> None:
    train, _ = read(large)
    cache, key = RunStore(Path("runs/.data").absolute()), train.path.parent.name
    del train
    removing, waiting = EntryLock(cache, key), EntryLock(cache, key)
    assert removing.try_alone()
    assert not waiting.try_alone()
    with ThreadPoolExecutor() as threads:
        beginning = threads.submit(read, large)
        shutil.rmtree(cache.path(key))
        cache.path(f".{key}.lock").unlink()
        removing.release()
        assert len(beginning.result(timeout=60)[0]) == 7
    assert not waiting.try_alone(), "the run begins with the lock that is there now"


def test_a_small_file_is_not_shared(letters: str) -> None:
    config = RunConfig(runs_dir="runs", data=DataConfig(source=letters))
    scratch = Scratch()
    train, _ = read_or_share(config, scratch)
    assert train.path.parent == scratch.path
    assert not Path("runs").exists()
