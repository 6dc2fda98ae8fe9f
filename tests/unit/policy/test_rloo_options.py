"""What reaches TRL's RLOOConfig, and what RLOO has not and says so."""

import pytest
from trl import RLOOConfig

from mortal_steps.config.field_metadata import STATE, trl_options_decided
from mortal_steps.config.trl_options import options_of
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import dump_toml, load_stored_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.rloo import LACKING, RLOO
from mortal_steps.policy.algorithms.stepping.options import build_options
from tests.support.policy.rollouts import make_config

VLLM = {"engine": "vllm"}


class Careful(RLOO):
    """As a user derives one."""

    normalize_advantages: bool = True


def rloo(*, settings=None, **changes):
    return make_config(algorithm={"type": "rloo", **(settings or {})}, **changes)


def test_the_keys_of_training_and_of_the_algorithm_reach_trl(tmp_path):
    config = rloo(
        settings={"normalize_advantages": True, "reward_clip_range": [-1, 1]},
        beta=0.1,
        epsilon=0.3,
        epsilon_high=0.4,
        num_iterations=3,
        gradient_accumulation_steps=2,
        rollout={"temperature": 0.6},
        trl={"mask_truncated_completions": True, "optim": "sgd"},
    )
    built = build_options(
        Plan(config).trainer, algorithm_of(config.algorithm), num_steps=10, output_dir=tmp_path
    )
    assert (built.normalize_advantages, built.reward_clip_range) == (True, (-1, 1))
    assert (built.beta, built.epsilon, built.epsilon_high) == (0.1, 0.3, 0.4)
    assert (built.num_iterations, built.max_steps, built.temperature) == (3, 30, 0.6)
    assert (built.mask_truncated_completions, built.optim) == (True, "sgd")
    assert built.reward_weights == [1.0, 0.5]


def test_defaults_are_those_of_the_documentation(tmp_path):
    config = RunConfig(algorithm={"type": "rloo"})
    built = build_options(Plan(config).trainer, RLOO(), num_steps=1, output_dir=tmp_path)
    assert (built.beta, built.num_generations, built.normalize_advantages) == (0.0, 4, False)
    assert (RLOOConfig.beta, RLOOConfig.num_generations) == (0.05, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_type": "grpo"}, r"training\.loss_type = 'grpo': RLOO has one loss, its own; leave"),
        ({"scale_rewards": "none"}, r"scale_rewards = 'none': .*algorithm\.normalize_advantages"),
        (
            {"importance_sampling_correction": True},
            r"training\.importance_sampling_correction = True: .* set algorithm\.type = 'grpo'",
        ),
        ({"trl": {"entropy_coef": 0.1}}, r"trl\.entropy_coef is an option of TRL's GRPO, and RL"),
        ({"trl": {"vllm_importance_sampling_mode": "token_mask"}}, r"an option of TRL's GRPO"),
        (
            {"trl": {"normalize_advantages": True}},
            r"trl\.normalize_advantages is set by algorithm\.normalize_advantages; use that",
        ),
        ({"trl": {"adam_beta3": 0.9}}, r"TRL's RLOOConfig has no such option; did you mean"),
        ({"trl": {"eval_on_start": True}}, r"eval_on_start cannot be set: use evaluation"),
        (
            {"rollout": {"staleness": 1}},
            r"rollout\.staleness = 1: .* older weights, .* set it to 0, or .*correction = false",
        ),
        ({"rollout": {"sync_weights_every": 2}}, r"rollout\.sync_weights_every = 2: .*to 1, or"),
    ],
)
def test_what_rloo_has_not_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        config = rloo(**changes)
        algorithm_of(config.algorithm).check(Plan(config).trainer)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss_type": "dapo", "scale_rewards": "group"},  # the defaults, written out
        {"importance_sampling_correction": False, "rollout": {"staleness": 2}},
        {"rollout": VLLM},
    ],
)
def test_what_is_at_its_default_is_not_refused(changes, tmp_path):
    config = rloo(**changes)
    assert algorithm_of(config.algorithm).check(Plan(config).trainer) == ()
    (tmp_path / "config.toml").write_text(dump_toml(config))  # as a run keeps it
    kept = load_stored_config(tmp_path / "config.toml")
    assert kept == config
    assert algorithm_of(kept.algorithm).check(Plan(kept).trainer) == ()


def test_every_key_that_only_grpo_has_is_refused():
    decided = trl_options_decided(RunConfig)
    of_grpo = set(options_of("GRPOConfig")) - set(options_of("RLOOConfig"))
    keys = {key for option, key in decided.items() if option in of_grpo}
    with_tools = {"environment.max_tool_calling_iterations"}  # environments are refused as a whole
    assert keys == {f"training.{key}" for key in LACKING} | with_tools


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_clip_range": [1, 0]}, r"algorithm\.reward_clip_range: the first number, the low"),
        ({"reward_clip_range": [1]}, r"algorithm\.reward_clip_range"),
        ({"normalize_advantage": True}, r"did you mean algorithm\.normalize_advantages\?"),
        ({"kept": 2}, r"algorithm\.kept: unknown key; known keys here: type, normalize_advantages"),
    ],
)
def test_a_bad_setting_of_the_algorithm_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"algorithm": {"type": "rloo", **settings}})


def test_a_class_derived_from_it_has_its_settings(model_path, tmp_path):
    config = make_config(algorithm={"type": f"{__name__}:Careful"})
    algorithm = algorithm_of(config.algorithm)
    assert algorithm.check(Plan(config).trainer) == ()
    stepper = algorithm.stepper(
        Plan(config).trainer,
        model_path=model_path,
        num_steps=1,
        output_dir=tmp_path,
        autocast=False,
    )
    assert stepper._trainer.normalize_advantages


def test_a_run_is_of_its_algorithm():
    plain, other = RunConfig(), RunConfig(algorithm={"type": "rloo"})
    assert other.identity(defaults=False)["algorithm"] == {"type": "rloo"}
    assert plain.fingerprint() != other.fingerprint()
    normalized = RunConfig(algorithm={"type": "rloo", "normalize_advantages": True})
    assert normalized.fingerprint() != other.fingerprint()
    assert STATE in RLOO.model_fields["type"].metadata


def test_ids_that_are_made_name_the_algorithm_unless_the_run_has_a_name():
    kinds = [{}, {"type": "rloo"}, {"type": "mine:Own"}]
    assert [RunConfig(algorithm=kind).id_prefix for kind in kinds] == ["grpo", "rloo", "grpo"]
    assert RunConfig(name="gsm8k", algorithm={"type": "rloo"}).id_prefix == "gsm8k"
