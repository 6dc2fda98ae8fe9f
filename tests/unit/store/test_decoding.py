"""mortal_steps.store.decoding: records are read as pydantic, which writes them, would read them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mortal_steps.compute.modal.orders import Settings
from mortal_steps.config import RunConfig
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.on_disk.checkpoints import BestCheckpoint
from mortal_steps.promotion.comparison import Comparison
from mortal_steps.registry.registry import Decision
from mortal_steps.rewards.sources.history import SourceHistory
from mortal_steps.runs.lease import LeaseRecord
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.store.decoding import decode
from mortal_steps.types import Evaluation, FileRef, Problem, RewardedShard, StepResult
from mortal_steps.types.identity import RunInfo

KINDS = [
    BestCheckpoint,
    Comparison,
    Decision,
    JournalEntry,
    LeaseRecord,
    RewardedShard,
    RunInfo,
    RunManifest,
    SourceHistory,
    StepResult,
    list[Problem],
]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0/."), min_size=1, max_size=5)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
ANYTHING = st.none() | st.booleans() | TEXT | NUMBERS | st.lists(TEXT, max_size=2)
PLAIN = {
    "string": TEXT,
    "integer": st.integers(-(2**40), 2**40),
    "number": NUMBERS,
    "boolean": st.booleans(),
    "null": st.none(),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_records_are_read_as_they_were_written(kind):
    schema = TypeAdapter(kind).json_schema()

    @settings(max_examples=10, deadline=None, database=None)
    @given(value=values(schema, schema.get("$defs", {})))
    def read(value):
        written = json.dumps(value)
        assert decode(json.loads(written), kind) == TypeAdapter(kind).validate_json(written)

    read()


def values(schema, known):
    """Plain values that a JSON schema allows."""
    if "$ref" in schema:
        return values(known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return st.one_of([values(each, known) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        needed = {*schema.get("required", ()), *schema["properties"].keys() & {"updated_at"}}
        fields = {name: values(each, known) for name, each in schema["properties"].items()}
        return st.fixed_dictionaries(
            {name: each for name, each in fields.items() if name in needed},
            optional={name: each for name, each in fields.items() if name not in needed},
        )
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        each = values(inner, known) if isinstance(inner, dict) else ANYTHING
        return st.dictionaries(TEXT, each, max_size=2)
    if schema.get("type") == "array":
        return st.lists(values(schema["items"], known), max_size=2)
    return PLAIN.get(schema.get("type"), ANYTHING)


REF = {"path": "a/b", "sha256": "0"}


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ({"path": "a"}, FileRef, "sha256 is missing"),
        ({**REF, "path": "../a"}, FileRef, "path: '../a' is no path below the run directory"),
        ({**REF, "sha256": 7}, FileRef, "sha256: 7 is no str"),
        (REF, list[FileRef], "is no list"),
        ([REF, None], list[FileRef], "1: None is no dict"),
        ({"a": True}, dict[str, int], "a: True is no int"),
        ({"a": "1"}, dict[str, float | None], "a: '1' is no float, and '1' is no NoneType"),
        ({"step": 1, "score": None}, BestCheckpoint, "score: None is no float"),
        ({"status": "odd"}, RunManifest, "status: 'odd' is none of 'created', 'running'"),
        ([], Evaluation, "is no dict"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(value, kind, told):
    with pytest.raises(ValueError) as error:
        decode(value, kind)
    assert told in str(error.value)


def test_what_newer_code_has_added_is_passed_over():
    assert decode({**REF, "size": 7}, FileRef) == FileRef(**REF)


def test_a_configuration_in_a_record_checks_itself():
    recorded = Settings(
        config=RunConfig(seed=7),
        fingerprint="f",
        dataset_fingerprint="d",
        num_steps=1,
        model_folder=None,
        project_sha256=None,
    )
    written = json.loads(TypeAdapter(Settings).dump_json(recorded))
    assert decode(written, Settings) == recorded
    written["config"]["seed"] = -2
    with pytest.raises(ValueError, match="greater than or equal to -1"):
        decode(written, Settings)
