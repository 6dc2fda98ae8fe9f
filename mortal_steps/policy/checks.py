"""What is found wrong with a run's training before there is a run: options, model, prompts."""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

from mortal_steps.config import AlgorithmConfig, EnvironmentConfig, ModelConfig
from mortal_steps.config.sharding import check_sharding, does_not_go_with
from mortal_steps.config.training import FULL
from mortal_steps.data.problem_files import prompts_of
from mortal_steps.environments.starts import environment_of
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.policy.algorithms.base import Algorithm, algorithm_of
from mortal_steps.policy.algorithms.trl_hooks import SCORES, TrlHooks
from mortal_steps.policy.batches import PreparedRows, ScoredRollouts
from mortal_steps.policy.chat_settings import chat_of
from mortal_steps.policy.gpu import has_bfloat16
from mortal_steps.policy.library_warnings import LibraryWarnings
from mortal_steps.policy.plan import ActorPlan, TrainerPlan
from mortal_steps.policy.starting_model import prompt_lengths
from mortal_steps.policy.starting_model.prompt_lengths import Tools
from mortal_steps.types import Problem

DATED = (
    "the model's chat template writes today's date into each prompt, so a run that is resumed on "
    "another day has other prompts from there on, and ends with other bits; if the template has an "
    "option for the date, set it: training.trl.chat_template_kwargs = {date_string = '1 Jan 2026'}"
)


def check_options(
    plan: ActorPlan,
    *,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    supplied: str = ScoredRollouts.__name__,
    sampled: int,
    offered: Mapping[str, Tools] | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...], prompt_lengths.PromptLengths]:
    """Check the algorithm's options, then measure all prompts (`prompt_lengths.measure`), which
    leave room for `sampled` tokens; `offered` are the tools of each environment, by its name.
    This needs no weights and no GPU.

    Returns a sentence for each option that has no effect, what there is to warn of, and the
    lengths. Raises what `Algorithm.check` raises; for a model in a local folder, the
    `ModelError` of `check_starting_weights`; and, with tools, that of `chat_of`.
    """
    trainer = plan.trainer
    warned, settings = LibraryWarnings(), tuple[str, ...]()
    if not is_hub_model(trainer.model):
        path = trainer.model.name_or_path
        settings = check_model(trainer.model, path, trainer.algorithm)
    prompts = chain(prompts_of(train), prompts_of(held_out))
    options = trainer.training.template_options
    with warned.collecting():
        if plan.environment.is_used:
            chat = chat_of(trainer.model, options)
            options = {**options, "chat_template": chat.chat_template}
        algorithm = algorithm_of(trainer.algorithm)
        if algorithm.trains_on.__name__ != supplied:
            raise ConfigError(
                f"algorithm.type = {algorithm.type!r} trains on {algorithm.trains_on.__name__},"
                f" and rollout.source = {trainer.rollout.source!r} supplies "
                f"{supplied}; choose an algorithm and a source that fit together"
            )
        if algorithm.trains_on is PreparedRows and algorithm is not trainer.algorithm:
            raise ConfigError(
                f"algorithm.type = {algorithm.type!r}: it is derived from an algorithm that learns "
                "from prepared rows, which one of your own cannot be; derive it from GRPO or RLOO, "
                "and let it train on `Rows` (docs/extending.md)"
            )
        check_ranks(trainer, algorithm)
        idle = algorithm.check(trainer)
        if algorithm.trains_on is PreparedRows:  # TRL makes tokens of them: `prepare_rows`
            return idle, (*settings, *warned.take()), prompt_lengths.NOT_MEASURED
        tools = _tools_of(plan.environment, chain(train, held_out), offered or {})
        lengths = prompt_lengths.measure(trainer.model, options, prompts, sampled, tools)
    warnings = (*settings, *warned.take(), *lengths.warnings)
    if lengths.dated and not plan.environment.is_used:  # with tools, the day is kept
        warnings = (*warnings, DATED)
    return idle, warnings, lengths


def check_model(model: ModelConfig, path: str, algorithm: AlgorithmConfig) -> tuple[str, ...]:
    """Raise `ModelError` unless the files at `path` hold all weights of a model that the algorithm
    trains. Return what there is to warn of."""
    # Imported where used: imports torch.
    from mortal_steps.policy.starting_model.starting_weights import check_starting_weights

    if model.new is not None:
        return ()
    scores = isinstance(algorithm, TrlHooks) and algorithm.task == SCORES
    return check_starting_weights(path, trust_remote_code=model.trust_remote_code, scores=scores)


def check_ranks(plan: TrainerPlan, algorithm: Algorithm) -> None:
    """Raise `ConfigError` for what several ranks cannot train."""
    training = plan.training
    if training.ranks == 1:
        return
    trained = (ScoredRollouts, PreparedRows)
    if not isinstance(algorithm, TrlHooks) or algorithm.trains_on not in trained:
        raise ConfigError(
            f"training.ranks = {training.ranks}: algorithm.type = {algorithm.type!r} trains in one "
            "process; leave training.ranks out"
        )
    if training.sharding != FULL:
        return
    if not hasattr(os, "memfd_create"):
        raise ConfigError(
            "training.sharding = 'full' needs Linux, where ranks share the memory that a model is "
            "loaded into; leave training.sharding out"
        )
    check_sharding(plan.model, plan.training)
    is_float32 = plan.rollout.dtype == "float32" and training.trl.get("bf16") is not False
    if is_float32 and has_bfloat16():
        beside = "rollout.dtype = 'float32' beside training in bfloat16"
        raise does_not_go_with(plan.training, beside)


def _tools_of(
    environment: EnvironmentConfig, problems: Iterable[Problem], offered: Mapping[str, Tools]
) -> Iterable[Tools | None]:
    """Yield the tools that the prompt of each problem offers."""
    if not offered or not environment.has_names:
        return repeat(offered.get(""))
    return (offered[environment_of(environment, problem) or ""] for problem in problems)
