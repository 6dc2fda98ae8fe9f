"""The worker: right seeds, right weights or none, work done once."""

from __future__ import annotations

import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from mortal_steps.errors import (
    ConfigError,
    CorruptFileError,
    DataError,
    EngineError,
    ModelError,
    StoreError,
    WeightsMismatchError,
)
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.episodes.single_turn import SingleTurn
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.schedule import completion_seed, completion_seeds, derive_seed
from mortal_steps.store import RunStore
from mortal_steps.types import (
    FileRef,
    GeneratedShard,
    GenerateRequest,
    PolicyVersion,
    Problem,
    SamplingParams,
    WeightsRef,
)
from tests.support.damage import flip_a_byte
from tests.support.refused import refused
from tests.support.rollout.tiny_model import publish

PROBLEMS = [Problem(id=f"train-{row}", prompt=f"{row}abc=>") for row in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


@pytest.fixture
def v0(store, model_a) -> WeightsRef:
    return publish(store, 0, model_a)


@pytest.fixture
def v1(store, model_b) -> WeightsRef:
    return publish(store, 1, model_b)


@pytest.fixture
def batch(store) -> FileRef:
    return store.write_record("steps/000003/batch.json", PROBLEMS, list[Problem])


def config(**rollout) -> RunConfig:
    return RunConfig.model_validate({"rollout": {"engine": "transformers", **rollout}})


def worker_for(store, model, **rollout) -> RolloutWorker:
    return RolloutWorker(
        run_dir=str(store.root), model_path=str(model), plan=Plan(config(**rollout)).sampler
    )


@pytest.fixture
def worker(store, model_a) -> RolloutWorker:
    return worker_for(store, model_a)


def request(batch: FileRef, weights: WeightsRef, **changes) -> GenerateRequest:
    whole = GenerateRequest(
        stage="generate",
        step=3,
        shard=1,
        problems=batch,
        start=2,
        stop=4,
        num_generations=3,
        sampling=SamplingParams(max_tokens=6),
        weights=weights,
        output="steps/000003/generations-1.parquet",
    )
    return replace(whole, **changes)


def sampled_tokens(store, reference):
    shard = store.read_record(reference.file, GeneratedShard)
    return [c.token_ids for group in shard.groups for c in group.completions]


def test_a_shard_holds_its_problems_completions(store, worker, batch, v0, tokenizer):
    reference = worker.generate(request=request(batch, v0))
    shard = store.read_record(reference.file, GeneratedShard)
    assert (shard.step, shard.shard, shard.policy_version) == (3, 1, 0)
    assert [group.problem for group in shard.groups] == PROBLEMS[2:4]
    for group in shard.groups:
        assert list(group.prompt_ids) == tokenizer(group.problem.prompt)["input_ids"]
        assert len({tuple(c.token_ids) for c in group.completions}) == 3
        for generation, completion in enumerate(group.completions):
            assert completion.seed == completion_seed(42, 3, group.problem.id, generation)
            assert completion.policy_version == 0
            assert len(completion.logprobs) == len(completion.token_ids) <= 6
            text = tokenizer.decode(completion.token_ids, skip_special_tokens=True)
            assert completion.text == text
    lengths = [len(c.token_ids) for group in shard.groups for c in group.completions]
    assert (reference.num_completions, reference.num_tokens) == (6, sum(lengths))
    assert (reference.step, reference.shard, reference.policy_version) == (3, 1, 0)
    assert (reference.timing.stage, reference.timing.step, reference.timing.index) == (
        "generate",
        3,
        1,
    )
    assert reference.timing.busy_s > 0


class Timed(SingleTurn):
    def took(self):
        return {"search": 1.5}


def test_what_episodes_call_is_timed_by_name(store, model_a, batch, v0):
    worker = worker_for(store, model_a, episodes=f"{__name__}:Timed")
    assert worker.generate(request=request(batch, v0)).timing.functions == {"search": 1.5}
    assert worker.generate(request=request(batch, v0)).timing.functions == {}, "there already"


def test_a_committed_shard_is_answered_and_not_sampled(store, worker, model_a, batch, v0):
    first = worker.generate(request=request(batch, v0))
    fresh = worker_for(store, model_a)
    again = fresh.generate(request=request(batch, v0))
    timing = replace(first.timing, busy_s=0.0, sync_s=0.0, num_bytes=0)
    assert again == replace(first, timing=timing)
    assert fresh._engine is None


def test_a_damaged_shard_is_sampled_again(store, worker, batch, v0, caplog):
    first = worker.generate(request=request(batch, v0))
    path = store.path(first.file.path)
    path.write_bytes(path.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING, logger="mortal_steps.rollout"):
        again = worker.generate(request=request(batch, v0))
    assert again.file == first.file
    assert "sampling steps/000003/generations-1.parquet again" in caplog.text
    assert "damaged" in caplog.text


def test_a_shard_of_another_version_is_sampled_again(store, worker, batch, v0, v1):
    old = worker.generate(request=request(batch, v0))
    new = worker.generate(request=request(batch, v1))
    assert (old.policy_version, new.policy_version) == (0, 1)
    assert new.file.sha256 != old.file.sha256
    assert worker.generate(request=request(batch, v1)).file == new.file


OTHERS = {
    "other rows": [replace(each, id=f"row-{each.id}") for each in PROBLEMS],
    "another prompt of the same row": [replace(each, prompt="9abc=>") for each in PROBLEMS],
    "another answer to the same row": [replace(each, columns={"answer": 2}) for each in PROBLEMS],
    "a row that the shard before has, too": [PROBLEMS[2], *PROBLEMS[1:]],
}


@pytest.mark.parametrize("stage", ["generate", "evaluate"])
@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_a_shard_of_other_problems_is_sampled_again(
    store, worker, batch, v0, caplog, others, stage
):
    first = worker.generate(request=request(batch, v0, stage=stage))
    other = store.write_record("steps/000003/others.json", others, list[Problem])
    with caplog.at_level(logging.WARNING, logger="mortal_steps.rollout"):
        again = worker.generate(request=request(other, v0, stage=stage))
    assert "sampling steps/000003/generations-1.parquet again: it was sampled" in caplog.text
    shard = store.read_record(again.file, GeneratedShard)
    assert [group.problem for group in shard.groups] == others[2:4]
    fresh = request(other, v0, stage=stage, output="elsewhere.parquet")
    assert again.file.sha256 == worker.generate(request=fresh).file.sha256 != first.file.sha256


def test_a_shard_with_fewer_completions_than_asked_for_is_sampled_again(store, worker, batch, v0):
    worker.generate(request=request(batch, v0, num_generations=2))
    assert worker.generate(request=request(batch, v0)).num_completions == 6


def test_a_shard_is_the_answer_whatever_its_problems_hold(store, worker, model_a, v0):
    columns = {"b": float("nan"), "a": [1.5, None, {"z": "\u00e9", "y": 1e-7}], "none": None}
    held = [Problem(id=f"odd-{row}", prompt="1+1=>", columns=columns) for row in (0, 1)]
    odd = store.write_record("steps/000003/odd.json", held, list[Problem])
    asked = request(odd, v0, start=0, stop=2)
    first = worker.generate(request=asked)
    fresh = worker_for(store, model_a)
    assert fresh.generate(request=asked).file == first.file
    assert fresh._engine is None, "nothing is sampled"


def test_a_fresh_worker_catches_up_and_samples_the_same(store, worker, model_a, batch, v0, v1):
    worker.sync_weights(weights=v0)
    worker.generate(request=request(batch, v0))
    timing = worker.sync_weights(weights=v1)
    assert (timing.stage, timing.step) == ("sync_weights", 1) and timing.busy_s > 0
    first = worker.generate(request=request(batch, v1))
    other = worker_for(store, model_a).generate(
        request=request(batch, v1, output="steps/000003/elsewhere.parquet")
    )
    assert first.file.sha256 == other.file.sha256


def test_a_shard_that_finds_no_weights_loaded_tells_how_long_they_took(store, worker, batch, v0):
    timing = worker.generate(request=request(batch, v0)).timing
    assert 0 < timing.sync_s < timing.busy_s
    assert timing.num_bytes > store.path("weights/v0/model.safetensors").stat().st_size
    timing = worker.generate(request=request(batch, v0, output="again.parquet")).timing
    assert (timing.sync_s, timing.num_bytes) == (0.0, 0)


def test_how_a_batch_is_cut_into_shards_does_not_change_its_tokens(store, worker, batch, v0):
    whole = worker.generate(request=request(batch, v0, start=0, output="whole.parquet"))
    half = worker.generate(request=request(batch, v0))
    assert sampled_tokens(store, whole)[6:] == sampled_tokens(store, half)


def test_evaluation_has_seeds_of_its_own(store, worker, batch, v0):
    reference = worker.generate(request=request(batch, v0, stage="evaluate"))
    shard = store.read_record(reference.file, GeneratedShard)
    assert reference.timing.stage == "evaluate"
    assert shard.groups[1].completions[2].seed == derive_seed("evaluate", 42, 3, "train-3", 2)


def test_a_problem_that_comes_twice_gets_other_completions(batch, v0):
    twice = [PROBLEMS[0], PROBLEMS[1], PROBLEMS[0], PROBLEMS[0]]
    whole = completion_seeds(request(batch, v0, start=0), twice, 42)
    assert len({seed for seeds in whole for seed in seeds}) == 12
    assert whole[0] == [completion_seed(42, 3, "train-0", generation) for generation in range(3)]
    # Whichever shard an occurrence falls into.
    assert completion_seeds(request(batch, v0, start=2), twice, 42) == whole[2:]


# --- weights --------------------------------------------------------------------------------------


def test_one_flipped_bit_in_the_weights_is_refused(store, worker, batch, v0, v1):
    """It is found beside loading, when the engine holds the damaged weights already."""
    flip_a_byte(store.path("weights/v0/model.safetensors"))
    for _ in range(2):
        with refused(CorruptFileError, "model.safetensors", "damaged"):
            worker.generate(request=request(batch, v0))
    assert not store.path("steps/000003/generations-1.parquet").exists()
    timing = worker.sync_weights(weights=v1)
    assert timing.num_bytes > store.path("weights/v1/model.safetensors").stat().st_size
    expected = worker_for(store, worker._model_path).generate(
        request=request(batch, v1, output="expected.parquet")
    )
    assert worker.generate(request=request(batch, v1)).file.sha256 == expected.file.sha256


def test_whole_weights_that_are_not_the_actors_are_refused(store, worker, model_a, model_b, batch):
    swapped = publish(store, 5, model_a, probe_folder=model_b)
    for _ in range(2):
        with refused(WeightsMismatchError, "weights/v5", "canary_tolerance"):
            worker.generate(request=request(batch, swapped))
    assert not store.path("steps/000003/generations-1.parquet").exists()


def test_weights_replaced_since_they_were_published_are_refused(store, worker, v0, model_b):
    publish(store, 0, model_b)
    with pytest.raises(CorruptFileError, match="altered"):
        worker.sync_weights(weights=v0)


def test_a_version_that_is_gone_is_refused(store, worker, v0):
    missing = WeightsRef(version=PolicyVersion(9), path="weights/v9", sha256=v0.sha256)
    with pytest.raises(CorruptFileError, match="v9"):
        worker.sync_weights(weights=missing)


def test_after_a_refusal_good_weights_load_again(store, worker, other_shape, batch, v0):
    worker.sync_weights(weights=v0)
    with pytest.raises(EngineError):
        worker.sync_weights(weights=publish(store, 6, other_shape))
    fresh = worker_for(store, worker._model_path)
    expected = fresh.generate(request=request(batch, v0, output="expected.parquet"))
    assert worker.generate(request=request(batch, v0)).file.sha256 == expected.file.sha256


def test_nothing_is_loaded_twice(store, worker, v0, monkeypatch):
    worker.sync_weights(weights=v0)
    monkeypatch.setattr(worker._engine, "load", lambda folder: pytest.fail("loaded again"))
    worker.sync_weights(weights=v0)


# --- what cannot be used --------------------------------------------------------------------------


def test_prompts_that_do_not_fit_are_a_data_error(worker, batch, v0):
    with refused(DataError, "'train-2'", "6 tokens", "510", "512"):
        worker.generate(request=request(batch, v0, sampling=SamplingParams(max_tokens=510)))


def test_a_shard_beyond_the_batch_is_a_data_error(worker, batch, v0):
    with pytest.raises(DataError, match="2 to 9"):
        worker.generate(request=request(batch, v0, stop=9))


def test_a_way_of_syncing_that_cannot_be_imported_is_named(store, model_a):
    with pytest.raises(ConfigError, match="nowhere:Sync"):
        worker_for(store, model_a, weight_sync="nowhere:Sync").start()


def test_without_what_the_actor_settled_about_chats_no_tool_is_called(store, model_a, batch, v0):
    tools = {"tools": ["json:dumps"]}
    with_tools = RunConfig.model_validate(
        {"rollout": {"engine": "transformers"}, "environment": tools}
    )
    worker = RolloutWorker(
        run_dir=str(store.root), model_path=str(model_a), plan=Plan(with_tools).sampler
    )
    worker.start()  # the actor may not be that far
    with refused(StoreError, "data/chat.json", "missing"):
        worker.generate(request=request(batch, v0))


def test_a_folder_without_a_model_is_a_model_error(store, tmp_path):
    with pytest.raises(ModelError, match=str(tmp_path)):
        worker_for(store, tmp_path).start()


def test_without_vllm_the_error_names_the_interpreter_setting(store, model_a, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what it sets for vLLM is forgotten
    with pytest.raises(EngineError, match=r"compute\.local\.rollout\.python"):
        worker_for(store, model_a, engine="vllm").start()


def test_the_log_says_once_what_is_not_compared(worker, v0, caplog, monkeypatch):
    def sync_twice():
        for _ in range(2):
            worker._loaded = None
            worker.sync_weights(weights=v0)

    with caplog.at_level(logging.INFO):
        sync_twice()
    assert caplog.text.count("all tensors of a version are compared") == 1
    monkeypatch.setattr(worker._engine, "compare", lambda published: {})
    sync_twice()
    assert caplog.text.count("alone are their proof") == 1


def test_the_policy_is_served_only_after_the_runs_weights_are_loaded(store, model_a, v0, v1):
    """Also by a worker that takes the place of another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asked = {"prompt": "1abc=>", "max_tokens": 2}
    options = {"source": "atropos", "source_options": {"port": port}, "num_rollout_workers": 1}
    worker = worker_for(store, model_a, **options)
    worker.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        refused = client.post("/generate", json=asked)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        worker.sync_weights(weights=v1)
        assert client.post("/generate", json=asked).json()["weight_version"] == 1
        flip_a_byte(store.path(v0.path) / "model.safetensors")
        with pytest.raises(CorruptFileError):
            worker.sync_weights(weights=v0)
        assert client.post("/generate", json=asked).status_code == 503
        worker.sync_weights(weights=v1)
        assert client.post("/generate", json=asked).json()["weight_version"] == 1
