"""A run that learns from what teachers say, whole, and the same run killed on the way."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.config import ComputeConfig, NewModelConfig
from mortal_steps.errors import ConfigError, RewardError
from mortal_steps.orchestration.batch_sources.base import needed_roles
from mortal_steps.orchestration.checking.teachers import check_teachers
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.report.samples import samples_of
from mortal_steps.report.summary import summarize
from mortal_steps.rewards.token_logprobs import unpacked
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.types import RewardedShard
from tests.support.bare_flow import Killed, bare_in, go_on, project_config
from tests.support.refused import refused

SETTINGS = {
    "algorithm.type": "opd",
    "algorithm.teachers.main": "teacher",
    "algorithm.beta": "0.0",
    "algorithm.loss_top_k": "4",
    "training.num_generations": "1",
    "training.gradient_accumulation_steps": "2",
    "training.max_steps": "4",
    "rollout.staleness": "1",
    "rewards.functions": "[]",
    "evaluation.functions": '["rewards.py:matches"]',
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    with bare_in(folder):
        yield folder


@pytest.fixture(scope="module")
def config(project):
    found = project_config(project, **SETTINGS)
    new = found.model.new or NewModelConfig()
    (project / "teacher").mkdir()
    build_model(project / "teacher", new.model_copy(update={"num_layers": 3}), seed=5)
    return found


@pytest.fixture(scope="module")
def whole(config):
    return go_on(config)


def records(run):
    return {path: path.stat().st_mtime_ns for path in run.store.path("steps").rglob("rewards-*")}


def test_a_killed_run_ends_with_the_same_bits_and_asks_nothing_twice(config, whole):
    killed = config.model_copy(update={"run_id": "killed"})
    with pytest.raises(Killed):
        go_on(killed, killed_after=2)
    before = records(find_run(Path("runs"), "killed"))
    run = go_on(killed)
    assert run.manifest.final == whole.manifest.final
    assert len(before) >= 2 * 3 and before.items() <= records(run).items()
    assert [each for each in check_run(Path("runs"), "killed").files if each.damage] == []


def test_it_is_shown_by_its_loss_and_by_what_is_held_out(whole):
    rows = [json.loads(line) for line in whole.store.path("metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4 and all(row["loss"] > 0 for row in rows)
    assert all(row["reward"] is None and row["num_unscored"] == 6 for row in rows)
    assert all(row["teacher-main/logprob"] < 0 for row in rows)
    summary = summarize(whole)
    assert summary.merit == "loss" and not summary.nothing_learned
    assert set(summary.eval) == {"matches", "reward"} and summary.warnings == []
    assert [each.kind for each in samples_of(whole, 2)] == ["unscored"] * 2


def test_a_record_holds_so_many_logprobs_a_token(whole):
    path = whole.store.path("steps/000000/rewards-0.parquet")
    _, shard = whole.store.find_record(str(path.relative_to(whole.store.root)), RewardedShard)
    assert shard.extra == {}
    for content in shard.teacher_logprobs:
        said = unpacked(content)
        assert said.top_TK.shape == said.top_ids_TK.shape == (len(said.sampled_T), 4)
        assert (said.top_TK[:, 0] >= said.sampled_T).all()


def test_reward_workers_are_started_to_ask_it(config):
    workers = replace(Plan(config).workers, samples_held_out=False)
    assert needed_roles(workers) == {"actor", "rollout", "reward"}


def test_rewards_are_shown_and_change_no_bit(project, config, whole):
    scored = project_config(project, **{**SETTINGS, "rewards.functions": '["rewards.py:matches"]'})
    run = go_on(scored.model_copy(update={"run_id": "scored"}))
    rows = [json.loads(line) for line in run.store.path("metrics.jsonl").read_text().splitlines()]
    assert all(row["reward"] is not None and row["num_scored"] == 6 for row in rows)
    assert run.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256


def test_a_run_does_not_go_on_with_another_teacher(project, config):
    begun = config.model_copy(update={"run_id": "begun"})
    with pytest.raises(Killed):
        go_on(begun, killed_after=0)
    file = project / "teacher" / "generation_config.json"
    before = file.read_bytes()
    file.write_text("{}")
    with refused(RewardError, "teacher/generation_config.json"):
        go_on(begun)
    file.write_bytes(before)


def test_the_engine_of_a_teacher_is_in_the_interpreter_of_rollout_workers(project):
    teacher = "{name_or_path='teacher', engine='vllm'}"
    given = project_config(project, **{**SETTINGS, "algorithm.teachers.main": teacher})
    told = ("algorithm.teachers.main.engine = 'vllm'", sys.executable, "local.rollout.python")
    with refused(ConfigError, *told):
        check_teachers(forecast_plan(given), given.data)
    there = {"backend": "modal", "modal": {"rewards": "modal"}}  # images have their own
    there = given.model_copy(update={"compute": ComputeConfig.model_validate(there)})
    check_teachers(forecast_plan(there), given.data)
