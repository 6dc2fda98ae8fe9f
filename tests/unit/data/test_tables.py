"""Columns of a table whose type says more than how they are stored."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from datasets import (
    Array2D,
    Audio,
    Dataset,
    Features,
    Image,
    Json,
    LargeList,
    List,
    Value,
    load_dataset,
)
from PIL import Image as Pictures

from mortal_steps.data.sources.files import read_dataset, read_file
from mortal_steps.errors import DataError
from tests.support.refused import refused
from tests.support.rows import load, write_lines

CALLS = [{"name": "add", "arguments": {"amount": 6}}, {"name": "sub", "arguments": {"by": "x"}}]
CHAT = [{"role": "user", "content": "1+1="}, {"role": "assistant", "tool_calls": CALLS}]
SHAPES: dict[str, tuple[Any, list[Any]]] = {
    "a value": (Json(), [{"a": 1}, [1, "x"], "text", 7, 0.1234567890123456789, None]),
    "a list": (List(Json()), [CHAT, [], [1, {"b": None}], None]),
    "a large list": (LargeList({"x": Json()}), [[{"x": CALLS}], [], None]),
    "a field": ({"a": Json(), "b": Value("int32")}, [{"a": [1, "2"], "b": 1}, None]),
    "text by choice": (Json(decode=False), ['{"a": 1}', None]),
    "an array": (Array2D((2, 2), "int32"), [[[1, 2], [3, 4]]]),
}


def as_file(table: Dataset) -> str:
    table.to_parquet("rows.parquet")
    return "rows.parquet"


def as_folder(table: Dataset) -> str:
    Path("folder").mkdir()
    table.to_parquet("folder/train.parquet")
    return "folder"


def as_saved(table: Dataset) -> str:
    table.save_to_disk("saved")
    return "saved"


WAYS = [as_file, as_folder, as_saved]


def rows_of(source: str) -> list[dict[str, Any]]:
    path = Path(source)
    if path.is_file():
        return list(read_file(path, source))
    return list(read_dataset(path, source, None, "train", source))


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_that_datasets_gives(shape: str, save: Callable[[Dataset], str]) -> None:
    feature, values = SHAPES[shape]
    features = Features({"prompt": Value("string"), "x": feature})
    table = Dataset.from_list([{"prompt": "a", "x": x} for x in values], features=features)
    found = rows_of(save(table))
    assert found == list(table)
    if shape != "a value":  # whose numbers `datasets` writes in fewer digits
        assert [row["x"] for row in found] == values
    table.to_parquet("again.parquet")
    by_trl = load_dataset("parquet", data_files="again.parquet", split="train", cache_dir="cache")
    assert found == list(by_trl)


@pytest.mark.parametrize("feature", [Json(), List(Json())])
def test_prompts_of_json_are_messages_wherever_they_are_read(feature: Any) -> None:
    features = Features({"prompt": feature, "meta": Json()})
    rows = [{"prompt": [CHAT[0]], "meta": {"a": 1}}, {"prompt": CHAT, "meta": {"b": [0, "x"]}}]
    source = as_file(Dataset.from_list(rows, features=features))
    other = write_lines("a.jsonl", [{"prompt": [{"role": "user", "content": "b"}]}])
    for train in (
        load(source=source)[0],
        load(source=other, eval_source=source)[1],
        load(source=other, eval_sets={"one": source})[1],
    ):
        assert [row.prompt for row in train] == [[CHAT[0]], CHAT]
        assert [row.columns for row in train] == [{"meta": {"a": 1}}, {"meta": {"b": [0, "x"]}}]


def test_a_byte_that_is_true_or_false_is_that() -> None:
    stored = pyarrow.array([1, 0, None], pyarrow.int8())
    column = pyarrow.ExtensionArray.from_storage(pyarrow.bool8(), stored)
    rows = pyarrow.table({"prompt": ["a", "b", "c"], "x": column})
    pyarrow.parquet.write_table(rows, "rows.parquet")
    assert [row.columns["x"] for row in load(source="rows.parquet")[0]] == [True, False, None]


def extension(kind: Any, storage: Any) -> pyarrow.Array:
    return pyarrow.ExtensionArray.from_storage(kind, storage)


def unregistered() -> pyarrow.Table:
    """A column as other libraries write it: this process does not know the type."""
    field = pyarrow.field(
        "x", pyarrow.int64(), metadata={"ARROW:extension:name": "some.period"}, nullable=True
    )
    columns = [pyarrow.array(["a"]), pyarrow.array([5])]
    return pyarrow.table(columns, schema=pyarrow.schema([("prompt", pyarrow.string()), field]))


def of_tensors() -> pyarrow.Array:
    stored = pyarrow.array([[1, 2, 3, 4]], pyarrow.list_(pyarrow.int32(), 4))
    return extension(pyarrow.fixed_shape_tensor(pyarrow.int32(), [2, 2]), stored)


def within(column: pyarrow.Array) -> pyarrow.Array:
    """The column as the items of a list in a struct."""
    lists = pyarrow.ListArray.from_arrays([0, 1], column)
    return pyarrow.StructArray.from_arrays([lists], ["field"])


UNKNOWN: dict[str, Callable[[], Any]] = {
    "arrow.uuid": lambda: pyarrow.array([bytes(16)], pyarrow.uuid()),
    "arrow.fixed_shape_tensor": of_tensors,
    "arrow.opaque": lambda: extension(
        pyarrow.opaque(pyarrow.string(), "shape", "someone"), pyarrow.array(["1"])
    ),
    "some.period": unregistered,
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_types_that_are_not_known_are_refused_by_name(name: str, nested: bool) -> None:
    made = UNKNOWN[name]()
    if isinstance(made, pyarrow.Array):
        made = pyarrow.table({"prompt": ["a"], "x": within(made) if nested else made})
    pyarrow.parquet.write_table(made, "rows.parquet")
    with refused(DataError, "rows.parquet'", "column 'x'", name):
        load(source="rows.parquet")
    assert load(source="rows.parquet", drop_columns=["x"])[0][0].columns == {}


def picture() -> dict[str, Any]:
    content = io.BytesIO()
    Pictures.new("RGB", (1, 1)).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.parametrize(
    ("feature", "value", "kind"),
    [
        (Image(), picture(), "Image"),
        (List({"one": Image()}), [{"one": picture()}], "Image"),
        (Image(), None, "Image"),
        (Audio(), None, "Audio"),
    ],
)
def test_columns_of_media_are_refused_by_name_or_left_out(
    feature: Any, value: Any, kind: str, save: Callable[[Dataset], str]
) -> None:
    features = Features({"prompt": Value("string"), "x": feature})
    source = save(Dataset.from_list([{"prompt": "a", "x": value}], features=features))
    with refused(DataError, f"'{source}'", "column 'x'", f"{kind}()", "drop_columns = ['x']"):
        load(source=source)
    assert load(source=source, drop_columns=["x"])[0][0].columns == {}


@pytest.mark.parametrize("save", WAYS)
def test_columns_are_left_out_of_training_and_held_out_rows(
    save: Callable[[Dataset], str],
) -> None:
    rows = [{"prompt": f"p{row}", "raw": struct.pack("b", row), "answer": row} for row in range(4)]
    source = save(Dataset.from_list(rows))
    train, held_out = load(source=source, drop_columns=["raw"], eval_samples=1)
    assert [tuple(row.columns) for row in [*train, *held_out]] == [("answer",)] * 4
    other = write_lines("a.jsonl", [{"prompt": "b", "answer": 1}])  # which need not have it
    assert load(source=source, drop_columns=["raw"], eval_source=other)[1][0].columns == {
        "answer": 1
    }


@pytest.mark.parametrize("save", WAYS)
def test_a_column_to_leave_out_that_is_not_there_is_named(save: Callable[[Dataset], str]) -> None:
    source = save(Dataset.from_list([{"prompt": "a", "image": "x"}]))
    with refused(DataError, "drop_columns", "'imagee'", "'image'?"):
        load(source=source, drop_columns=["imagee"])
    with refused(DataError, "data.prompt_column = 'prompt'", "columns there: image"):
        load(source=source, drop_columns=["prompt"])


def test_text_that_datasets_takes_for_dates_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Path("folder").mkdir()
    rows = [{"prompt": "a", "answer": "2026-01-31", "inner": {"at": "2026-01-31 10:00:00"}}]
    write_lines("folder/train.jsonl", rows)
    assert load(source="folder/train.jsonl")[0][0].columns["answer"] == "2026-01-31"
    assert not caplog.messages
    assert load(source="folder")[0][0].columns["answer"] == "2026-01-31T00:00:00"
    (said,) = caplog.messages
    assert "takes the text in 'answer', 'inner' for dates" in said and "name the .jsonl" in said
