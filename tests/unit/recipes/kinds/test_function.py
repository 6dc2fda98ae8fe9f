"""Stages that are a function of the user's: who they are, and what may stand in them."""

from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.recipes.kinds.function import FunctionStage
from mortal_steps.recipes.references import Reference

CODE = "from pathlib import Path\n\ndef export(model: Path, out: Path, bits=8):\n    pass\n"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("export.py").write_text(CODE)
    Path("words.txt").write_text("a\n")
    Path("raw").mkdir()
    Path("raw/part.txt").write_text("a\n")


def stage(**values):
    return FunctionStage("gguf", {"call": "export.py:export", **values}, "letters")


def identity(**values):
    return stage(**values).identity(())


GIVEN = {"model": "stage:grpo", "words": "words.txt", "raw": ["raw/"], "bits": 4}


@pytest.mark.parametrize(
    "change",
    [
        lambda: {"bits": 2},
        lambda: {"model": "stage:sft"},
        lambda: {"output": "rows.jsonl"},
        lambda: {"other": 1},
        lambda: Path("export.py").write_text(f"{CODE}# edited\n") and {},
        lambda: Path("words.txt").write_text("b\n") and {},
        lambda: {"words": str(Path("words.txt").rename("terms.txt"))},  # which it is told
        lambda: Path("raw/part.txt").write_text("b\n") and {},
    ],
)
def test_parameters_code_and_the_files_that_they_name_decide(change):
    before = identity(**GIVEN)
    assert identity(**GIVEN) == before
    changes = change()
    assert identity(**{**GIVEN, **changes}) != before


def test_without_a_cache_each_beginning_is_another():
    first = stage(cache=False)
    assert first.identity(()) != identity(cache=False)
    again = stage(cache=False)
    again.begun = first.begun
    assert again.identity(()) == first.identity(())


def test_a_file_of_the_folder_is_a_dataset():
    assert stage().outputs == {"": "folder"}
    assert stage(output="rows.jsonl").outputs == {"": "dataset", "folder": "folder"}
    assert FunctionStage.outputs == {"": "folder"}


def test_references_may_stand_in_parameters_alone():
    reference = Reference(key="model", stage="grpo")
    assert "model" in stage(**GIVEN).wanted(reference)
    with pytest.raises(ConfigError, match=r"stages\.gguf\.call = 'stage:a'"):
        stage().wanted(Reference(key="call", stage="a"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"call": "export"}, "names no function"),
        ({"call": "stage:sft"}, "names no function"),
        ({"out": "here"}, "stages.gguf.out"),
        ({"cache": 3}, "stages.gguf.cache = 3"),
        ({"output": "../rows.jsonl"}, "name a file below `out`"),
    ],
)
def test_a_wrong_key_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        stage(**values)


def test_a_stage_without_a_function_says_how_to_name_one():
    with pytest.raises(ConfigError, match=r"stages\.gguf\.call is not set"):
        FunctionStage("gguf", {}, "letters")
