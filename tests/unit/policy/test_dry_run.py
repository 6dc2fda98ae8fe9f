"""What TRL finds out when it takes a step is found out before a run begins."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.stepping import dry_run
from mortal_steps.policy.library_warnings import LibraryWarnings
from tests.support.policy.rollouts import make_config

RLOO = {"type": "rloo"}


@pytest.mark.parametrize(
    ("options", "culprit", "said"),
    [
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "lr_scheduler_type", "min_lr"),
        (
            {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"cycles": 2}},
            "lr_scheduler_kwargs",
            "unexpected keyword argument 'cycles'",
        ),
        ({"weight_decay": 0.1, "adam_beta1": 1.5}, "adam_beta1", "Invalid beta"),
        ({"importance_sampling_level": "word"}, "importance_sampling_level", "word"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of", "ZeroDivisionError"),
        ({"gradient_checkpointing_kwargs": {"x": 1}}, "gradient_checkpointing_kwargs", "x"),
    ],
)
def test_an_option_that_trl_cannot_train_with_is_named(options, culprit, said):
    with pytest.raises(ConfigError) as caught:
        config = make_config(trl=options, gradient_checkpointing=True)
        algorithm_of(config.algorithm).check(Plan(config).trainer)
    told = str(caught.value)
    assert f"training.trl.{culprit} = {options[culprit]!r}" in told
    assert "TRL cannot train with this" in told and said in told


def test_so_is_one_with_which_weights_end():
    config = make_config(loss_type="sapo", trl={"sapo_temperature_neg": 0.0})
    with pytest.raises(ConfigError, match=r"sapo_temperature_neg = 0\.0: .* not finite\)$"):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_so_is_one_of_rloo():
    config = make_config(algorithm=RLOO, trl={"lr_scheduler_type": "cosine_with_min_lr"})
    with pytest.raises(ConfigError, match="lr_scheduler_type = 'cosine_with_min_lr'"):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_so_is_one_that_does_not_go_with_lora():
    config = make_config(
        use_lora=True, beta=0.1, trl={"sync_ref_model": True}, lora={"target_modules": ["q_proj"]}
    )
    with pytest.raises(ConfigError, match=r"sync_ref_model = True: .* PEFT"):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


@pytest.mark.parametrize("algorithm", [{}, RLOO])
def test_options_that_it_trains_with_pass(algorithm):
    """In several micro-batches, with a reference model, on few rows."""
    config = make_config(
        algorithm=algorithm,
        batch_size=12,
        num_generations=4,
        num_iterations=2,
        beta=0.1,
        gradient_accumulation_steps=3,
        trl={"sync_ref_model": True, "ref_model_sync_steps": 1, "steps_per_generation": 6},
    )
    (counting,) = algorithm_of(config.algorithm).check(Plan(config).trainer)
    assert counting.startswith("one step of a run is one batch, which makes 4 optimizer updates")


def test_what_trl_warns_of_in_its_step_is_collected():
    config = make_config(trl={"importance_sampling_level": "sequence"})
    collected = LibraryWarnings()
    with collected.collecting():
        assert algorithm_of(config.algorithm).check(Plan(config).trainer) == ()
    (warning,) = collected.take()
    assert "weights each sequence by its completion length" in warning


def test_what_fails_without_any_option_is_left_to_the_run(monkeypatch):
    monkeypatch.setattr(dry_run, "build_model", lambda folder, shape, seed: None)
    dry_run.dry_run(Plan(make_config(trl={"warmup_steps": 1})).trainer, GRPO())


@pytest.mark.parametrize(
    "options", [{}, {"optim": "adamw_8bit"}, {"torch_compile_mode": "default"}]
)
def test_what_a_cpu_or_a_small_model_cannot_tell_is_not_tried(monkeypatch, options):
    def never(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(dry_run, "build_model", never)
    dry_run.dry_run(Plan(make_config(trl=options)).trainer, GRPO())
