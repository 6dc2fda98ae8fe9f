"""What reaches TRL's DistillationConfig, and what distillation has not and says so."""

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.resolve_defaults import resolved_like
from mortal_steps.plan.loader import dump_toml, load_stored_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from mortal_steps.policy.starting_model.new_model import build_model
from tests.support.policy.rollouts import make_config
from tests.support.refused import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    build_model(folder, NewModelConfig(hidden_size=32, num_layers=1), seed=1)
    return str(folder)


def distilled(teacher, *, settings=None, **changes):
    algorithm = {"type": "distillation", "teacher": teacher, **(settings or {})}
    usual = {"num_generations": 1, "model": {"new": {}}}
    return make_config(algorithm=algorithm, **{**usual, **changes})


def test_the_settings_reach_trl(teacher, tmp_path):
    config = distilled(
        {"name_or_path": teacher, "dtype": "bfloat16"},
        settings={"beta": 0.3},
        rollout={"temperature": 0.6},
        gradient_accumulation_steps=2,
        trl={"disable_dropout": True},
    )
    algorithm = algorithm_of(config.algorithm)
    built = build_options(Plan(config).trainer, algorithm, num_steps=10, output_dir=tmp_path)
    assert (built.beta, built.temperature, built.disable_dropout) == (0.3, 0.6, True)
    assert built.teacher_model_init_kwargs == {"dtype": "bfloat16", "trust_remote_code": False}
    assert (built.per_device_train_batch_size, built.max_steps) == (2, 10)
    assert algorithm.arguments() == {"teacher_model": teacher}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"beta": 0.1}, ("training.beta = 0.1", "algorithm.beta")),
        ({"loss_type": "grpo"}, ("training.loss_type = 'grpo'", "one loss")),
        ({"num_iterations": 2}, ("training.num_iterations = 2", "each batch once")),
        (
            {"importance_sampling_correction": True},
            ("importance_sampling_correction = true", "present weights"),
        ),
        (
            {"use_lora": True, "lora": {"target_modules": ["q_proj", "lm_head"]}},
            ("training.lora.target_modules", "lm_head", "TRL would never train"),
        ),
        ({"trl": {"beta": 0.5}}, ("training.trl.beta is set by",)),
        ({"trl": {"teacher_model_revision": "v1"}}, ("teacher_model_revision", "[algorithm.teach")),
        ({"trl": {"teacher_model": "x"}}, ("argument of TRL's trainer", "algorithm.teacher")),
        ({"trl": {"entropy_coef": 0.1}}, ("entropy_coef is an option of TRL's GRPO",)),
        ({"trl": {"lr_scheduler_type": "cosine_with_min_lr"}}, ("cosine_with_min_lr", "min_lr")),
    ],
    ids=str,
)
def test_what_distillation_has_not_is_refused_by_name(teacher, changes, told):
    with refused((ConfigError, ValueError), *told):
        config = distilled(teacher, **changes)
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_older_completions_are_taken(teacher, tmp_path):
    """The divergence is the present student's at each token; nothing corrects for older ones."""
    config = distilled(teacher, rollout={"staleness": 2})
    assert algorithm_of(config.algorithm).check(Plan(config).trainer) == ()
    (tmp_path / "config.toml").write_text(dump_toml(config))  # as a run keeps it
    assert load_stored_config(tmp_path / "config.toml") == config


def test_a_prompt_has_one_completion_unless_more_are_asked_for():
    algorithm = {"type": "distillation", "teacher": "org/teacher"}
    assert parse_config({"algorithm": algorithm}).training.num_generations == 1
    more = {"algorithm": algorithm, "training": {"num_generations": 3}}
    assert parse_config(more).training.num_generations == 3
    assert parse_config({}).training.num_generations == 4
    with refused(ConfigError, "training.num_generations = 1", "'grpo' compares", "2 or more"):
        parse_config({"training": {"num_generations": 1}})


def test_nothing_is_scored_unless_rewards_are_named():
    algorithm = {"algorithm": {"type": "distillation", "teacher": "org/teacher"}}
    assert parse_config(algorithm).training_rewards is None
    assert Plan(parse_config(algorithm)).trainer.reward_weights == {}
    judged = {**algorithm, "evaluation": {"functions": ["rewards.py:exact"]}}
    assert parse_config(judged).training_rewards is None
    named = {**algorithm, "rewards": {"functions": ["rewards.py:exact"]}}
    assert Plan(parse_config(named)).trainer.reward_weights == {"exact": 1.0}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ("algorithm.teacher",)),
        ({"teacher": "org/teacher", "beta": 1.5}, ("algorithm.beta",)),
        ({"teacher": {"name_or_path": "t", "dtypes": "x"}}, ("dtypes", "dtype")),
    ],
)
def test_a_bad_setting_is_named(settings, told):
    with refused(ConfigError, *told):
        parse_config({"algorithm": {"type": "distillation", **settings}})


def test_a_run_keeps_the_commit_of_its_teacher():
    values = {"algorithm": {"type": "distillation", "teacher": "org/teacher"}}
    config = parse_config(values)
    begun = config.pinned(lambda table, model: COMMIT)
    assert begun.fingerprint() != config.fingerprint()
    assert resolved_like(config, begun).algorithm.teacher.revision == COMMIT
    values["algorithm"]["teacher"] = "org/other"
    assert resolved_like(parse_config(values), begun).algorithm.teacher.revision is None


def test_a_teacher_with_other_tokens_is_refused(tmp_path, teacher):
    build_model(tmp_path, NewModelConfig(alphabet=NewModelConfig().alphabet[::-1]), seed=0)
    config = distilled(str(tmp_path), model={"name_or_path": teacher})
    told = (str(tmp_path), teacher, "token 3 is '\\n' to it and 'a' to the student")
    with refused(ConfigError, *told):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_tools_are_refused():
    values = {
        "algorithm": {"type": "distillation", "teacher": "org/teacher"},
        "environment": {"tools": ["tools.py:add"]},
    }
    with refused(ConfigError, "'distillation' trains on single turns"):
        parse_config(values)
