"""A result in Prefect's cache is taken for what was asked for alone, and for one of this code."""

import pickle
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from mortal_steps.types import BatchRef, FileRef, PolicyVersion, StageTiming, WeightsRef
from mortal_tasks import durability, stages
from mortal_tasks.durability import shape_of


def older():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Ref:
        step: int

    return Ref


def newer():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Ref:
        step: int
        sources: tuple[str, ...] = field(default=())

    return Ref


def test_a_pickle_leaves_a_field_unset_that_it_is_older_than_so_its_key_is_another(monkeypatch):
    kind = older()
    monkeypatch.setitem(globals(), "Ref", kind)
    kind.__qualname__ = "Ref"
    cached = pickle.dumps(kind(step=3))
    monkeypatch.setitem(globals(), "Ref", newer())
    taken = pickle.loads(cached)
    with pytest.raises(AttributeError, match="sources"):
        _ = taken.sources
    assert shape_of(older()) == shape_of(older()) != shape_of(newer())


def test_completions_of_other_problems_have_another_key(monkeypatch):
    monkeypatch.setattr(durability, "tag_stage", lambda *_, **__: None)
    info = SimpleNamespace(info=SimpleNamespace(uid="run"))
    session = SimpleNamespace(run=info, is_committed=lambda *_: False)
    file = FileRef(path="steps/000003/batch.json", sha256="a" * 64)
    timing = StageTiming(stage="get_batch", step=3)
    batch = BatchRef(step=3, file=file, num_problems=4, timing=timing)
    weights = WeightsRef(version=PolicyVersion(3), path="weights/v3", sha256="c" * 64)

    def key(batch):
        asked = {"session": session, "step": 3, "shard": 1, "batch": batch, "weights": weights}
        return stages.generate.cache_policy.compute_key(
            task_ctx=None, inputs=asked, flow_parameters={}
        )

    others = replace(batch, file=replace(file, sha256="b" * 64))
    assert key(batch) == key(replace(batch, timing=replace(timing, busy_s=2.0))) != key(others)
