"""Checks everything about a configuration that can be checked before a worker starts.

These are the runs directory, the model folder, the dataset and its columns, and the interpreters.
Then, each in a process of its own that ends with the check: every reward function is called once,
environments are reset for a few rows, TRL checks its options, and every prompt is measured against
the model's context. This process imports no torch.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import begin_imports, call_once
from mortal_steps.data.held_out import check_not_the_same
from mortal_steps.data.prepared import Prepared
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.batch_sources.base import declared, needed_roles
from mortal_steps.orchestration.checking.checks import (
    check_adapter,
    check_column,
    check_engine,
    check_model,
    check_no_rows,
    check_pictures,
    check_room_for_weights,
    check_rows,
    check_runs_dir,
    check_trl_options,
    context_of,
    warn_of_schedule,
    warn_of_unjudged_checkpoints,
)
from mortal_steps.orchestration.checking.data_lines import (
    Scores,
    report_data,
    warn_of_answers,
    warn_of_repeats,
)
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.forecast_lines import report_forecast
from mortal_steps.orchestration.checking.harnesses import check_harnesses
from mortal_steps.orchestration.checking.problems import Problems, read
from mortal_steps.orchestration.checking.reward_calls import (
    DRY_RUN_PROBLEMS,
    check_rewards,
    check_scored_until,
    check_something_scores,
    sets_of,
    warn_of_no_prices,
)
from mortal_steps.orchestration.checking.rows import (
    SFT,
    check_form,
    check_source,
    prepare,
    warn_of_idle_keys,
    warn_of_longer,
)
from mortal_steps.orchestration.checking.sampled_alike import check_sampled_alike
from mortal_steps.orchestration.checking.step_time import measured_time
from mortal_steps.orchestration.checking.teachers import (
    check_context,
    check_judged,
    check_taught,
    check_teacher,
    check_teachers,
)
from mortal_steps.orchestration.trials.environment_trial import check_resets
from mortal_steps.orchestration.trials.opening import forecast_plan, passing_workers
from mortal_steps.places.base import place_of
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.rows.epochs import num_steps as num_steps_of_rows
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.plan import ActorPlan
from mortal_steps.policy.starting_model.prompt_lengths import PromptLengths, Tools, keep_fitting
from mortal_steps.schedule import num_train_steps
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

WORTH_A_WORD = 20_000
"""Prompts whose tokens take seconds to count; the user is told that this is going on."""


class ParallelStartup:
    """Work beside the checks; this class does none."""

    def begin(self) -> None:
        """Start slow processes: called when the quick checks have passed."""

    def go_on(self) -> None:
        """Go on: called when only the imports of the workers are left to wait for."""


def check(
    config: RunConfig,
    problems: Problems | None = None,
    say: Callable[[str], None] | None = None,
    parallel: ParallelStartup | None = None,
    warned: list[str] | None = None,
    show: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Problems:
    """Check a resolved configuration, and return the problems of the run.

    The problems are read from their source unless they are given, and rows prepared unless those
    are given, too. `say` is called with a line on every check that may take a while, `tell` with
    one on what became of the rows (without it, the line is logged), and `show` with the lines of a
    dry run: on data and rewards, and the forecast. What TRL warns of is logged, and added to
    `warned`, as are the warnings of a forecast that is not shown. Raises the `MortalError` that
    names what is wrong.
    """
    say, parallel = say or (lambda line: None), parallel or ParallelStartup()
    tell, runs_dir = show or tell or logger.info, Path(config.runs_dir)
    check_runs_dir(runs_dir)
    checks = _Checks(config, say)
    checks.settings()
    checks.place.check_access(say)
    if problems is None:
        check_not_the_same(config.data)
    begin_workers_imports(checks.plan)
    parallel.begin()
    say("reading the dataset")
    train, held_out, known = problems or read(checks.plan.problems, runs_dir, say, tell)
    checks.rows(train, held_out)
    if checks.samples:
        checks.sampling()
    checks.place.check(samples=checks.samples)
    scores = checks.rewards(train, held_out)
    if config.evaluates:
        check_harnesses(config.evaluation.harnesses, config.compute, say)
    tools = checks.episodes(train)
    checks.say_what_trl_does(known)
    parallel.go_on()
    warned, actor = [] if warned is None else warned, checks.workers["actor"]
    lengths = check_training(actor, train, held_out, warned, checks.sampled, tools)
    if config.algorithm.judges_by_loss:
        if known is None:
            known = prepare(actor, train, held_out, runs_dir, config.training, say, tell, show)
            warn_of_longer(config.model, known.longest or 0)
        checks.prepared(known)
        return Problems(train, held_out, known)
    found = Problems(*keep_fitting(config.data, train, held_out, lengths))
    report_data(lengths, train[0].id, scores, show)
    warned += checks.forecast(min(lengths.longest, max(1, lengths.fits)), show)
    return found


class _Checks:
    """One kind of check a method, in the order in which they are made: what takes longer comes
    later."""

    def __init__(self, config: RunConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self.plan = Plan(config)
        self._expected = forecast_plan(config)
        self.place = self._expected.place
        self._roles = needed_roles(self.plan.workers)
        self.samples = "rollout" in self._roles
        self.sampled = config.max_tokens if self.samples else 0
        """Tokens for which a prompt leaves room."""

    @cached_property
    def workers(self) -> Mapping[Role, WorkerSpec]:
        return passing_workers(self.plan.workers)

    def settings(self) -> None:
        """Check what needs no row: the model, options of TRL, teachers."""
        config, algorithm = self._config, self._config.algorithm
        check_model(config.model, self.sampled)
        config.rollout.source_settings.check(context_of(config.model))
        check_trl_options(algorithm.type, config.model, config.training)
        if algorithm.judges_by_loss:
            check_source(config.data, config.rewards, algorithm.type)
            warn_of_idle_keys(config.rollout, config.evaluation, algorithm.type)
        supplied = declared(config.rollout.source, "supplies")
        scored = issubclass(supplied, ScoredRollouts) and not config.is_unscored
        check_scored_until(config.training.until, algorithm.type, scored=scored)
        scoring = (config.rewards, config.eval_rewards, *config.set_rewards.values())
        warn_of_no_prices(config.training.until, scoring, place_costs=config.compute.place.costs)
        if algorithm.teacher_model:
            check_teacher(algorithm.teacher_model, config.model, config.data)
        check_teachers(self._expected, config.data)
        judged = config.samples_held_out and config.scores_held_out_as_usual
        if judged and not algorithm.learns_from_rewards:
            check_judged(config.eval_rewards, algorithm.type)

    def rows(self, train: Sequence[Problem], held_out: Sequence[Problem]) -> None:
        """Check the rows, and what the settings ask of them."""
        config, every = self._config, self._config.evaluation.eval_steps
        if every and not (held_out or config.evaluation.harnesses):
            raise ConfigError(
                "evaluation.eval_steps is set, but there are no held-out problems; set "
                "data.eval_samples, data.eval_split, data.eval_source or data.eval_sets"
            )
        if not config.algorithm.judges_by_loss:
            warn_of_repeats(config.training.batch_size, len(train))
            num_steps = num_train_steps(len(train), config.training)
            warn_of_unjudged_checkpoints(config.checkpoints, every, num_steps)
            warn_of_answers(train)
        elif config.algorithm.type == SFT:
            text_column = config.training.trl.get("dataset_text_field", "text")
            check_form(row_of(train[0]), text_column, config.data.prompt_column)
        warn_of_schedule(config.training)
        check_pictures(config.data.source, config.model, train[0])
        if (config.environment.is_used or config.num_made_rows) and not config.data.source:
            check_no_rows(config.environment, config.training)
        check_column(config.selection, train[0])
        check_taught(config.algorithm, train)
        check_rows(config.environment, train)
        check_rows(config.environment, held_out)

    def sampling(self) -> None:
        """Check that the engine samples as is asked, and can be given the weights."""
        config, rollout = self._config, self._config.rollout
        check_engine(rollout, config.evaluation.temperature)
        for each in config.evaluation.problem_sets.values():
            check_engine(rollout, each.sampling(config.eval_sampling).temperature)
        check_sampled_alike(self.plan.trainer)
        check_adapter(rollout, config.training, config.only_merged)
        adapter = config.training.publishes_adapter
        check_room_for_weights(rollout, config.sampled_model, adapter=adapter)

    def rewards(self, train: Sequence[Problem], held_out: Sequence[Problem]) -> Scores:
        """Call the reward functions, and return what they give a made-up completion."""
        config = self._config
        if "reward" not in self._roles:
            return {}
        self._say(
            "calling the reward functions with a made-up completion"
            if config.rewards.dry_run
            else "importing the reward functions"
        )
        if config.rewards_and_teachers:
            check_something_scores(config.rewards_and_teachers, config.environment, train[0])
        return check_rewards(self.workers["reward"], train, sets_of(config.evaluation, held_out))

    def episodes(self, train: Sequence[Problem]) -> Mapping[str, Tools]:
        """Begin episodes of some rows, and return the tools that their environments offer."""
        environment = self._config.environment
        if not self.samples or not environment.is_used or environment.asks:
            return {}
        tried = train[:DRY_RUN_PROBLEMS] if self._config.rewards.dry_run else []
        self._say(f"beginning episodes of {len(tried)} rows")
        return check_resets(self.plan.environment, tried)

    def say_what_trl_does(self, known: Prepared | None) -> None:
        if known is not None:
            self._say("checking the training options with TRL")
        elif self._config.algorithm.judges_by_loss:
            self._say("checking the training options and preparing the rows with TRL")
        else:
            self._say("measuring the prompts, and checking the training options with TRL")

    def prepared(self, rows: Prepared) -> None:
        """Warn of what only the number of prepared rows tells."""
        steps = num_steps_of_rows(rows.num_rows, self._config.training)
        every = self._config.evaluation.eval_steps
        warn_of_unjudged_checkpoints(self._config.checkpoints, every, steps)

    def forecast(self, longest: int, show: Callable[[str], None] | None) -> Sequence[str]:
        """Check that the longest prompt fits teachers, and the run its GPUs. Return the warnings of
        a forecast that is not shown."""
        check_context(self._expected, longest)
        expected, rates = forecast(self._expected, longest, samples=self.samples), None
        if show is not None:
            measure = partial(call_once, self.workers["actor"], "measure_rates")
            rates = measured_time(expected, lambda products: measure(products=products))
        return report_forecast(expected, show, rates)


def begin_workers_imports(plan: Plan, rounding: Mapping[str, str] | None = None) -> None:
    """Have the workers' imports begin beside what this process does next. `rounding` is the run's,
    if it has begun. Raises `ConfigError` for an interpreter that does not exist."""
    workers = plan.workers
    place_of(plan.place).check_interpreters(needed_roles(workers))
    begin_imports(dataclasses.replace(passing_workers(workers)["actor"], rounding=rounding))


def check_training(
    worker: WorkerSpec,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    warned: list[str],
    sampled: int,
    tools: Mapping[str, Tools],
) -> PromptLengths:
    """Have TRL check the options of `[training]` and `[training.trl]` in an actor, and return the
    lengths of all prompts with the `tools` of their environments, of which those fit the model that
    leave room for `sampled` tokens. Its warnings are added to `warned`."""
    plan: ActorPlan = worker.kwargs["plan"]
    count = len(train) + len(held_out)
    measures = not plan.trainer.algorithm.judges_by_loss  # TRL makes tokens of rows, later
    if measures and count >= WORTH_A_WORD:
        logger.warning("counting the tokens of %s prompts", f"{count:,}")
    without_effect, by_trl, lengths = call_once(
        worker,
        "check",
        train=train,
        held_out=held_out,
        supplied=declared(plan.trainer.rollout.source, "supplies").__name__,
        sampled=sampled,
        offered=tools,
    )
    warned += by_trl
    for warning in (*without_effect, *by_trl):
        logger.warning("%s", warning)
    measured: PromptLengths = lengths
    return measured
