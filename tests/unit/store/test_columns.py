"""Completions and scores as columns: they come back exactly, and damage never goes unnoticed."""

import math
from array import array
from dataclasses import replace

import pyarrow
import pytest
from hypothesis import given, settings

from mortal_steps.errors import CorruptFileError, NewerFormatError, StoreError
from mortal_steps.store import FORMAT, RunStore, seal, shard_columns
from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    Problem,
    RewardedShard,
    Turn,
)
from tests.support.drawn_shards import GENERATED, rewarded
from tests.support.refused import refused


def same(found, written):
    """Equal, with NaN equal to itself and -0.0 other than 0.0."""
    if isinstance(written, float):
        return isinstance(found, float) and found.hex() == written.hex()
    if isinstance(written, dict):
        return found.keys() == written.keys() and all(same(found[k], written[k]) for k in written)
    if isinstance(found, array):
        return same(list(found), written)
    if isinstance(written, list | tuple):
        return len(found) == len(written) and all(map(same, found, written))
    fields = getattr(type(written), "__dataclass_fields__", None)
    if fields:
        return all(same(getattr(found, name), getattr(written, name)) for name in fields)
    return type(found) is type(written) and found == written


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return RunStore(tmp_path_factory.mktemp("run"))


def check_round_trip(store, shard):
    kind = type(shard)
    ref = store.write_record("r.parquet", shard, kind)
    first = store.path("r.parquet").read_bytes()
    assert same(store.read_record(ref, kind), shard)
    store.check_record(ref)
    assert store.write_record("r.parquet", shard, kind) == ref
    assert store.path("r.parquet").read_bytes() == first


@settings(max_examples=30)
@given(shard=GENERATED)
def test_completions_of_any_content_come_back_to_the_bit(store, shard):
    check_round_trip(store, shard)


@settings(max_examples=30)
@given(shard=rewarded())
def test_scores_of_any_content_come_back_to_the_bit(store, shard):
    check_round_trip(store, shard)


def small_shard():
    made = Completion(
        token_ids=[7, 40, 5],
        logprobs=[-0.1, 0.0, -2.5],
        text="bä",
        finish_reason="stop",
        seed=2**63 - 1,
        policy_version=3,
        turns=(
            Turn(start=0, stop=1, seed=5, finish_reason="stop", round=0),
            Turn(start=2, stop=3, seed=6, finish_reason="length", round=1),
        ),
    )
    groups = [
        GeneratedGroup(
            problem=Problem(id="train-0", prompt="ab=", columns={"answer": "ba"}),
            prompt_ids=[3, 4],
            completions=[made, replace(made, turns=(), logprobs=[-0.1, -0.2, math.ulp(0.0)])],
        )
    ]
    return GeneratedShard(step=3, shard=0, policy_version=3, groups=groups)


def small_scores():
    return RewardedShard(
        step=3,
        shard=0,
        generation_sha256="0" * 64,
        rewards=[[{"exact": 1.0, "short": None}, {"exact": 0.0, "short": 0.25}]],
        extra={"length": [3, None]},
    )


@pytest.mark.parametrize("shard", [small_shard(), small_scores()], ids=["generated", "rewarded"])
def test_every_flipped_bit_and_every_cut_is_noticed(store, shard):
    kind = type(shard)
    ref = store.write_record("r.parquet", shard, kind)
    path = store.path("r.parquet")
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        with refused(CorruptFileError, "r.parquet", "damaged"):
            seal.check_seal(path, bytes(damaged))
        with refused(CorruptFileError, "r.parquet", "damaged"):
            seal.check_seal(path, whole[:position])
    for content in (b"", whole[:-1], whole + b"\n", whole[4:], b"PAR1" * 3):
        path.write_bytes(content)
        for read in (
            lambda: store.find_record("r.parquet", kind),
            lambda: store.read_record(ref, kind),
            lambda: store.check_record(ref),
        ):
            with refused(CorruptFileError, "r.parquet", "damaged"):
                read()
    path.unlink()
    assert store.find_record("r.parquet", kind) is None
    with refused(CorruptFileError, "r.parquet", "missing"):
        store.read_record(ref, kind)


def test_a_replaced_file_is_not_the_one_referred_to(store):
    ref = store.write_record("r.parquet", small_shard(), GeneratedShard)
    store.write_record("r.parquet", replace(small_shard(), shard=1), GeneratedShard)
    with refused(CorruptFileError, "r.parquet", "replaced"):
        store.read_record(ref, GeneratedShard)


def test_a_file_of_another_kind_is_refused(store):
    ref = store.write_record("r.parquet", small_shard(), GeneratedShard)
    with refused(CorruptFileError, "r.parquet", "RewardedShard", "GeneratedShard"):
        store.read_record(ref, RewardedShard)


def test_a_newer_format_is_refused_by_name(store, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(shard_columns, "FORMAT", FORMAT + 1)
        ref = store.write_record("r.parquet", small_shard(), GeneratedShard)
    said = rf"r\.parquet is of format {FORMAT + 1}, .* none beyond {FORMAT}"
    with pytest.raises(NewerFormatError, match=said):
        store.read_record(ref, GeneratedShard)


def test_a_parquet_file_of_somebody_else_is_refused(store):
    path = store.path("r.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"step": [1]}), path)
    with refused(CorruptFileError, "r.parquet", "digest"):
        store.find_record("r.parquet", GeneratedShard)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"rewards": [[{"a": 1.0}, {"b": 1.0}]], "extra": {}}, "not every completion is scored"),
        ({"extra": {"length": [1]}}, "'length' has 1 values for 2 completions"),
        ({"rewards": [[]], "extra": {}}, "a group has no completions"),
    ],
)
def test_scores_that_are_no_table_are_not_written(store, changes, wrong):
    with pytest.raises(StoreError, match=rf"r\.parquet cannot hold this RewardedShard: {wrong}"):
        store.write_record("r.parquet", replace(small_scores(), **changes), RewardedShard)


def test_a_token_beyond_every_vocabulary_is_not_written(store):
    group = small_shard().groups[0]
    group = replace(group, prompt_ids=[2**31])
    with refused(StoreError, "r.parquet", "GeneratedShard"):
        store.write_record("r.parquet", replace(small_shard(), groups=[group]), GeneratedShard)
