"""Checks everything about a configuration that can be checked before a worker starts.

These are the runs directory, the model folder, the dataset and its columns, and the interpreters.
Then, each in a process of its own that ends with the check: every reward function is called once,
environments are reset for a few rows, TRL checks its options, and every prompt is measured against
the model's context. This process imports no torch.
"""

import dataclasses
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import begin_imports, call_once
from mortal_steps.config import (
    EnvironmentConfig,
    EvaluationConfig,
    RewardsConfig,
)
from mortal_steps.config.rewards import FORMS
from mortal_steps.data.held_out import EVAL, check_not_the_same
from mortal_steps.data.prepared import Prepared
from mortal_steps.data.problems import read_problems
from mortal_steps.environments.plan import ProblemsPlan
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
    rows_in_words,
    warn_of_answers,
    warn_of_repeats,
)
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.forecast_lines import report_forecast
from mortal_steps.orchestration.checking.own_rewards import own_rows
from mortal_steps.orchestration.checking.rewards_on_gpus import called_here
from mortal_steps.orchestration.checking.rows import check_source, prepare
from mortal_steps.orchestration.checking.sampled_alike import check_sampled_alike
from mortal_steps.orchestration.checking.step_time import measured_time
from mortal_steps.orchestration.checking.teacher import check_judged, check_teacher
from mortal_steps.orchestration.checking.teachers import (
    check_context,
    check_taught,
    check_teachers,
)
from mortal_steps.orchestration.trials.environment_trial import check_resets
from mortal_steps.orchestration.trials.opening import forecast_plan, passing_workers
from mortal_steps.places.base import place_of
from mortal_steps.plan.parts import Plan, WorkerPlans
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.epochs import num_steps as num_steps_of_rows
from mortal_steps.policy.plan import ActorPlan
from mortal_steps.policy.starting_model.prompt_lengths import PromptLengths, Tools, keep_fitting
from mortal_steps.rewards.code_execution.environment import COLUMNS
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.schedule import num_train_steps
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

DRY_RUN_PROBLEMS = 2
WORTH_A_WORD = 20_000
"""Prompts whose tokens take seconds to count; the user is told that this is going on."""

READING = ".reading-"
"""Prefix of the temporary folder, among the runs, that holds the rows while they are read."""


class Problems(NamedTuple):
    """What a run learns from."""

    train: Sequence[Problem]
    held_out: Sequence[Problem]
    prepared: Prepared | None = None
    """The rows as TRL prepared them, if the run learns from rows."""


"""The training problems and the held-out problems of a run."""


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
    are given, too. `say` is called with a line on
    every check that may take a while, `tell` with one on what became of the rows (without it, the
    line is logged), and `show` with the lines of a dry run: on data and rewards, and the forecast.
    What TRL warns of is logged, and added to `warned`, as are the warnings of a forecast that is
    not shown. Raises the `MortalError` that names what is wrong.
    """
    say, parallel = say or (lambda line: None), parallel or ParallelStartup()
    tell = show or tell or logger.info
    warned = [] if warned is None else warned
    check_runs_dir(Path(config.runs_dir))
    plan = Plan(config)
    roles = _roles(plan.workers)
    sampled = config.max_tokens if "rollout" in roles else 0
    check_model(config.model, sampled)
    config.rollout.source_settings.check(context_of(config.model))
    check_trl_options(config.algorithm.type, config.model, config.training)
    if config.algorithm.judges_by_loss:
        check_source(config.data, config.rewards, config.algorithm.type)
    if config.algorithm.teacher_model:
        check_teacher(config.algorithm.teacher_model, config.model, config.data)
    check_teachers(config)
    judged = config.samples_held_out and config.scores_held_out_as_usual
    if judged and not config.algorithm.learns_from_rewards:
        check_judged(config.eval_rewards, config.algorithm.type)
    place, workers = place_of(plan.place), passing_workers(plan.workers)
    place.check_access(say)
    if problems is None:
        check_not_the_same(config.data)
    begin_workers_imports(plan)
    parallel.begin()
    say("reading the dataset")
    train, held_out, _ = problems or _read(plan.problems, Path(config.runs_dir), say, tell)
    if config.evaluation.eval_steps and not (held_out or config.evaluation.harnesses):
        raise ConfigError(
            "evaluation.eval_steps is set, but there are no held-out problems; set "
            "data.eval_samples, data.eval_split, data.eval_source or data.eval_sets"
        )
    if not config.algorithm.judges_by_loss:
        warn_of_repeats(config.training.batch_size, len(train))
        num_steps = num_train_steps(len(train), config.training)
        warn_of_unjudged_checkpoints(config.checkpoints, config.evaluation.eval_steps, num_steps)
        warn_of_answers(train)
    warn_of_schedule(config.training)
    check_pictures(config.data.source, config.model, train[0])
    if (config.environment.is_used or config.num_made_rows) and not config.data.source:
        check_no_rows(config.environment, config.training)
    check_column(config.selection, train[0])
    check_taught(config.algorithm, train)
    check_rows(config.environment, train)
    check_rows(config.environment, held_out)
    if "rollout" in roles:
        check_engine(config.rollout, config.evaluation.temperature)
        for each in config.evaluation.problem_sets.values():
            check_engine(config.rollout, each.sampling(config.eval_sampling).temperature)
        check_sampled_alike(plan.trainer)
        check_adapter(config.rollout, config.training, config.only_merged)
        check_room_for_weights(
            config.rollout, config.sampled_model, adapter=config.training.publishes_adapter
        )
    place.check(samples="rollout" in roles)
    scores: Scores = {}
    if "reward" in roles:
        say(
            "calling the reward functions with a made-up completion"
            if config.rewards.dry_run
            else "importing the reward functions"
        )
        if config.rewards_and_teachers:
            check_something_scores(config.rewards_and_teachers, config.environment, train[0])
        scores = check_rewards(workers["reward"], train, sets_of(config.evaluation, held_out))
    if config.evaluates:
        check_harnesses(config, say)
    tools: Mapping[str, Tools] = {}
    if "rollout" in roles and config.environment.is_used and not config.environment.asks:
        tried = train[:DRY_RUN_PROBLEMS] if config.rewards.dry_run else []
        say(f"beginning episodes of {len(tried)} rows")
        tools = check_resets(plan.environment, tried)
    known = problems.prepared if problems else None
    if known is not None:
        say("checking the training options with TRL")
    elif config.algorithm.judges_by_loss:
        say("checking the training options and preparing the rows with TRL")
    else:
        say("measuring the prompts, and checking the training options with TRL")
    parallel.go_on()
    lengths = check_training(workers["actor"], train, held_out, warned, sampled, tools)
    if config.algorithm.judges_by_loss:
        runs_dir, training = Path(config.runs_dir), config.training
        rows = known
        if rows is None:
            rows = prepare(workers["actor"], train, held_out, runs_dir, training, say, tell, show)
        steps = num_steps_of_rows(rows.num_rows, training)
        warn_of_unjudged_checkpoints(config.checkpoints, config.evaluation.eval_steps, steps)
        return Problems(train, held_out, rows)
    found = Problems(*keep_fitting(config.data, train, held_out, lengths))
    report_data(lengths, train[0].id, scores, show)
    longest = min(lengths.longest, max(1, lengths.fits))
    check_context(config, longest)
    expected = forecast(forecast_plan(config), longest, samples="rollout" in roles)
    rates = None
    if show is not None:
        measure = partial(call_once, workers["actor"], "measure_rates")
        rates = measured_time(expected, lambda products: measure(products=products))
    warned += report_forecast(expected, show, rates)
    return found


def begin_workers_imports(plan: Plan, rounding: Mapping[str, str] | None = None) -> None:
    """Have the workers' imports begin beside what this process does next. `rounding` is the run's,
    if it has begun. Raises `ConfigError` for an interpreter that does not exist."""
    workers = plan.workers
    place_of(plan.place).check_interpreters(_roles(workers))
    begin_imports(dataclasses.replace(passing_workers(workers)["actor"], rounding=rounding))


def _roles(workers: WorkerPlans) -> frozenset[Role]:
    return needed_roles(
        workers.rollout.rollout, evaluates=workers.samples_held_out, scores=workers.scores
    )


def _read(
    plan: ProblemsPlan, runs_dir: Path, say: Callable[[str], None], tell: Callable[[str], None]
) -> Problems:
    scratch = Scratch(runs_dir.absolute(), READING)
    try:
        found = read_problems(
            *(plan.data, plan.seed, scratch, say),
            num_made=plan.num_made,
            own_rows=own_rows(plan.environment),
        )
    except BaseException:
        scratch.remove()
        raise
    if plan.data.source:
        tell(f"{'data':<11}{rows_in_words(plan.data, found)}")
    return Problems(found.train, found.held_out)


def sets_of(
    evaluation: EvaluationConfig, held_out: Sequence[Problem]
) -> dict[str, Sequence[Problem]]:
    """Return the first problems of each set with settings of its own, without the columns that only
    others have."""
    found: dict[str, Sequence[Problem]] = {}
    for name in evaluation.problem_sets:
        its = [each for each in held_out if each.id.rpartition("-")[0] == f"{EVAL}-{name}"]
        known = {key for each in its for key, value in each.columns.items() if value is not None}
        found[name] = [
            dataclasses.replace(
                each, columns={key: value for key, value in each.columns.items() if key in known}
            )
            for each in its[:DRY_RUN_PROBLEMS]
        ]
    return found


def check_rewards(
    worker: WorkerSpec,
    problems: Sequence[Problem],
    sets: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
) -> Scores:
    """Import every reward function, let it score a made-up completion, and return its scores; those
    of the `sets` of evaluations score their problems."""
    plan: ScoringPlan = worker.kwargs["plan"]
    sample = problems[:DRY_RUN_PROBLEMS] if plan.rewards.dry_run else []
    if plan.compute.scores_in_a_container:
        plan, sets = called_here(plan, sets)
        worker = dataclasses.replace(worker, kwargs={**worker.kwargs, "plan": plan})
    if plan.scores_sets_alone and not plan.set_rewards:
        return {}
    tried = dict(sets) if plan.rewards.dry_run else dict.fromkeys(sets, ())
    scores: Scores = call_once(worker, "dry_run", problems=sample, sets=tried)
    return scores


def check_harnesses(config: RunConfig, say: Callable[[str], None]) -> None:
    """Load each harness in the rollout workers' interpreter, and let it check its settings. Raises
    `HarnessError`."""
    local, place = config.compute.local.rollout, config.compute.place
    there = place.shares_files and local.python and shutil.which(local.python)
    for name, harness in config.evaluation.harnesses.items():
        files = harness.read_files
        if files and not place.shares_files:
            raise ConfigError(
                f"evaluation.sets.{name} reads files of this machine ({files[0]}), and "
                f"compute.backend = {config.compute.backend!r} samples in containers, which do not "
                "get them; evaluate it on a machine of your own, or leave it out"
            )
        for file in harness.files:
            if not Path(file).exists():
                raise ConfigError(
                    f"evaluation.sets.{name}.files: there is no {file} in {Path.cwd()}"
                )
        say(f"loading the harness of evaluation.sets.{name}")
        spec = WorkerSpec(
            factory="mortal_steps.harnesses.handler:HarnessHandler",
            kwargs={"name": name, "harness": harness},
            python=local.python if there else None,
            env=local.env,
        )
        call_once(spec, "check")


def check_something_scores(
    rewards: RewardsConfig, environment: EnvironmentConfig, problem: Problem
) -> None:
    """Raise `ConfigError` unless rewards are named or the problem has test cases."""
    if rewards.are_named or any(name in problem.columns for name in COLUMNS):
        return
    raise ConfigError(
        "[rewards] names no reward, so completions would run as programs against the dataset's "
        f"test cases; but it has no column {' or '.join(COLUMNS)} (there are "
        f"{', '.join(sorted(problem.columns)) or 'none beside the prompt'}). "
        f"{_own_reward(environment)}Write "
        f"rewards.functions, each as {FORMS}; or name the column with test cases in an entry of "
        '[[rewards.terms]] with type = "sandbox"'
    )


def _own_reward(environment: EnvironmentConfig) -> str:
    if environment.asks:
        return "Its environment gives no reward either: `-> float` says that an agent returns it. "
    if environment.factory is None:
        return ""
    return "No environment defines `get_reward` either: define it, or name a reward. "


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
