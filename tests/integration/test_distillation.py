"""A run that learns from a teacher, whole, and the same run killed on the way."""

import asyncio
import json
from dataclasses import replace

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.orchestration.batch_sources.base import needed_roles
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.promotion.gate import Gate
from mortal_steps.registry.registry import Registry
from mortal_steps.report.samples import samples_of
from mortal_steps.report.summary import summarize
from tests.support.bare_flow import InProcess, Killed, bare_in, go_on, one_thread, project_config
from tests.support.refused import refused

SETTINGS = {
    "algorithm.type": "distillation",
    "algorithm.teacher": "teacher",
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


def test_a_run_that_distils_is_killed_and_ends_with_the_same_bits(config, whole):
    killed = config.model_copy(update={"run_id": "killed"})
    with pytest.raises(Killed):
        go_on(killed, killed_after=2)
    assert go_on(killed).manifest.final == whole.manifest.final
    assert whole.manifest.final.weights_sha256 != summarize(whole).fingerprint


def test_it_is_judged_by_its_loss_and_by_what_is_held_out(whole):
    rows = [json.loads(line) for line in whole.store.path("metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4 and all(row["loss"] > 0 for row in rows)
    assert all(row["reward"] is None and row["num_unscored"] == 6 for row in rows)
    assert not any("num_scored" in row for row in rows)
    summary = summarize(whole)
    assert summary.merit == "loss" and not summary.nothing_learned
    assert set(summary.eval) == {"matches", "reward"} and summary.warnings == []
    assert [each.kind for each in samples_of(whole, 2)] == ["unscored"] * 2


def test_without_rewards_nobody_is_started_to_score(config):
    workers = Plan(config).workers
    assert needed_roles(replace(workers, samples_held_out=False)) == {"actor", "rollout"}
    assert needed_roles(workers) == {"actor", "rollout", "reward"}


def test_rewards_are_shown_and_change_no_bit(project, config, whole):
    scored = project_config(project, **{**SETTINGS, "rewards.functions": '["rewards.py:matches"]'})
    run = go_on(scored.model_copy(update={"run_id": "scored"}))
    rows = [json.loads(line) for line in run.store.path("metrics.jsonl").read_text().splitlines()]
    assert all(row["reward"] is not None and row["num_scored"] == 6 for row in rows)
    assert run.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256


def test_a_set_alone_judges_a_run_and_its_model(project, config):
    rows = [{"prompt": f"{letter}=", "answer": letter} for letter in "abc"]
    (project / "hard.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {
        "training.max_steps": "1",
        "data.eval_samples": "0",
        "data.eval_sets.hard": "hard.jsonl",
        "evaluation.functions": "null",
        "evaluation.sets.hard.functions": '["rewards.py:matches"]',
        "evaluation.decides": "hard",
    }
    alone = project_config(project, **{**SETTINGS, **changes})
    run = go_on(alone.model_copy(update={"run_id": "alone"}))
    found = run.manifest.evaluation.metrics
    assert found.keys() == {"reward", "eval_hard_reward", "eval_hard_rewards/matches/mean"}
    gate = Gate(run, Registry(project / "models", "alone"), local=InProcess)
    with one_thread():
        compared = asyncio.run(gate.compare(gate.bring_in()))
    assert compared.metrics == found and compared.decides == "hard"


def test_a_run_does_not_go_on_with_another_teacher(project, config):
    begun = config.model_copy(update={"run_id": "begun"})
    with pytest.raises(Killed):
        go_on(begun, killed_after=0)
    file = project / "teacher" / "generation_config.json"
    before = file.read_bytes()
    file.write_text("{}")
    with refused(ModelError, "algorithm.teacher.name_or_path", "generation_config.json was chan"):
        go_on(begun)
    file.write_bytes(before)
