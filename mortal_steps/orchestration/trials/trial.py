"""Samples and scores completions without training, with workers like those of a run.

To be scored, completions are divided into shards as large as the run's, so that a function is
called with as many problems at a time as in a run. Each call has the run's timeout and retries.
Failures are masked whatever `rewards.on_error` says, because somebody who tries functions out wants
to see all of the failures.
"""

import dataclasses
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.interpreters import check_interpreter
from mortal_steps.compute.local import REHEARSAL, call_once, call_several
from mortal_steps.config import RewardsConfig
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.data.problems import load_problems
from mortal_steps.environments.plan import ProblemsPlan
from mortal_steps.orchestration.checking.own_rewards import own_rows
from mortal_steps.orchestration.checking.reward_calls import check_something_scores
from mortal_steps.orchestration.trials.opening import in_folder, ready_sampler
from mortal_steps.policy.plan import ActorPlan
from mortal_steps.policy.starting_model.base_model import base_model_path
from mortal_steps.report.dialogue import completion_text, prompt_of
from mortal_steps.report.reward_functions import FunctionRow
from mortal_steps.report.samples import why_masked
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.rewards.scoring.completions_file import GivenGroup, answers
from mortal_steps.rewards.worker import MADE_UP_TEXT
from mortal_steps.rollout.trial import SampledProblems
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.store import RunStore
from mortal_steps.store.records import step_file
from mortal_steps.types import (
    GeneratedShard,
    GenerationRef,
    PolicyVersion,
    Problem,
    Prompt,
    RewardedShard,
    RewardRef,
    RewardRequest,
    SamplingParams,
    StageTiming,
)

WORKER = "mortal_steps.rollout.trial:FinishedModelWorker"


def chosen_problems(
    plan: ProblemsPlan, prompts: Sequence[str], num_problems: int = 2
) -> list[Problem]:
    """Return the prompts as problems, or the dataset's first. Raises `DataError`."""
    if prompts:
        is_chat = plan.environment.environment.is_used
        return [
            Problem(
                id=f"prompt-{number}",
                prompt=[{"role": "user", "content": text}] if is_chat else text,
            )
            for number, text in enumerate(prompts, 1)
        ]
    no_others = {"eval_source": None, "eval_split": None, "eval_sets": dict[str, str]()}
    first = {"max_samples": num_problems, "eval_samples": 0}
    data = plan.data.model_copy(update={**no_others, **first})
    own = own_rows(plan.environment)
    return load_problems(data, plan.seed, num_made=plan.num_made, own_rows=own)[0]


def all_problems(plan: ProblemsPlan) -> list[Problem]:
    """Return the training problems of the dataset. Raises `DataError`."""
    own = own_rows(plan.environment)
    return load_problems(plan.data, plan.seed, num_made=plan.num_made, own_rows=own)[0]


def try_rollout(
    workers: Mapping[Role, WorkerSpec],
    problems: Sequence[Problem],
    num_generations: int,
    sampling: SamplingParams,
) -> SampledProblems:
    """Sample with the model that a run with these `passing_workers` would begin with. Raises what
    its rollout worker raises."""
    plan: ActorPlan = workers["actor"].kwargs["plan"]
    with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
        store = RunStore(Path(folder))
        # What is built for the trial goes with it.
        cache = store.path("models").absolute()
        path = base_model_path(
            dataclasses.replace(plan, cache_dir=cache), dataset_fingerprint(problems)
        )
        rollout = ready_sampler(workers, store, path, problems)
        sampled: SampledProblems = call_once(
            dataclasses.replace(rollout, factory=WORKER),
            "sample",
            problems=list(problems),
            num_generations=num_generations,
            sampling=sampling,
        )
    return sampled


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedCompletion:
    """A completion and its scores."""

    place: str
    """Its place in the file, such as `row 3`."""
    problem_id: str
    prompt: Prompt
    columns: Mapping[str, Any]
    """Those of its row, first those that settings of the rewards name."""
    text: str
    rewards: Mapping[str, float | None]
    """Score of each function; None where it abstained, or the completion is masked."""
    reward: float | None
    """Weighted sum of the scores; None if no function scored it."""
    masked: Sequence[str]
    """What each function that failed on it did; empty if none failed."""
    seconds: float
    """Duration of the calls that scored it, each of which also scored the rest of its shard."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedFunction(FunctionRow):
    """A reward function over all completions; `std` is the standard deviation of its scores."""

    weight: float
    num_scored: int
    num_abstained: int
    """Completions for which it returned None."""
    seconds: float
    """Seconds of all its calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The results of a trial."""

    completions: Sequence[TriedCompletion]
    functions: Sequence[TriedFunction]
    num_shards: int
    stops: bool
    """Whether a run would stop here: a function failed, and `rewards.on_error` is `raise`."""
    log: str
    """What the functions printed, and the tracebacks of their failures."""

    @property
    def num_masked(self) -> int:
        """Completions without scores because a function failed on them."""
        return sum(bool(each.masked) for each in self.completions)


def given_texts(plan: ProblemsPlan, texts: Sequence[str]) -> list[GivenGroup]:
    """Return the texts as answers to the dataset's first problem, or a made-up one."""
    [problem] = chosen_problems(plan, (), 1)
    return [answers(problem, texts or (MADE_UP_TEXT,), "text")]


def try_rewards(worker: WorkerSpec, given: Sequence[GivenGroup], size: int) -> Trial:
    """Score the groups, `size` in each call, with a reward worker of `passing_workers`. Raises
    `RewardError` for a function that cannot be imported, or its own `MortalError`."""
    plan: ScoringPlan = worker.kwargs["plan"]
    check_something_scores(plan.rewards, plan.code.environment, given[0].group.problem)
    check_interpreter(plan.compute, "reward")
    shards = [given[start : start + size] for start in range(0, len(given), size)]
    masking = plan.rewards.model_copy(update={"on_error": "mask"})
    with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
        store = RunStore(Path(folder))
        spec = in_folder(worker, store.root, plan=dataclasses.replace(plan, rewards=masking))
        requests = [_request(store, number, shard) for number, shard in enumerate(shards)]
        payloads = [{"request": request} for request in requests]
        found: list[RewardRef] = call_several(spec, "reward", payloads, store.path("logs"))
        scored = [store.read_record(each.file, RewardedShard) for each in found]
        log = store.path(f"logs/{REHEARSAL}.log").read_text(encoding="utf-8", errors="replace")
    weights = reward_weights(plan.rewards)
    completions = [
        each
        for shard, reference, rewarded in zip(shards, found, scored, strict=True)
        for each in _completions(shard, reference, rewarded, plan.rewards)
    ]
    failures = [failure for each in scored for failure in each.failures]
    return Trial(
        completions=completions,
        functions=[
            _function(name, weight, completions, found, scored) for name, weight in weights.items()
        ],
        num_shards=len(shards),
        stops=plan.rewards.on_error == "raise"
        and any(failure.kind != "environment" for failure in failures),
        log=log,
    )


def _request(store: RunStore, number: int, given: Sequence[GivenGroup]) -> RewardRequest:
    version, groups = PolicyVersion(0), [each.group for each in given]
    shard = GeneratedShard(step=0, shard=number, policy_version=version, groups=groups)
    generation = GenerationRef(
        step=0,
        shard=number,
        file=store.write_record(step_file("generate", 0, number), shard, GeneratedShard),
        num_completions=sum(len(group.completions) for group in groups),
        num_tokens=0,
        policy_version=version,
        timing=StageTiming(stage="generate", step=0),
    )
    output = step_file("reward", 0, number)
    return RewardRequest(stage="reward", generation=generation, output=output)


def _completions(
    shard: Sequence[GivenGroup],
    reference: RewardRef,
    rewarded: RewardedShard,
    config: RewardsConfig,
) -> Iterator[TriedCompletion]:
    weights, settings = reward_weights(config), str(config.model_dump())
    for given, scores in zip(shard, rewarded.rewards, strict=True):
        problem = given.group.problem
        columns = sorted(problem.columns, key=lambda name: f"'{name}'" not in settings)
        failures = [each for each in rewarded.failures if each.problem_id == problem.id]
        completions = zip(given.places, given.group.completions, scores, strict=True)
        for place, completion, rewards in completions:
            yield TriedCompletion(
                place=place,
                problem_id=problem.id,
                prompt=prompt_of(problem, completion),
                columns={name: problem.columns[name] for name in columns},
                text=completion_text(completion),
                rewards=rewards,
                reward=weighted_sum(rewards, weights),
                masked=why_masked(completion, failures),
                seconds=sum(reference.timing.functions.values()),
            )


def _function(
    name: str,
    weight: float,
    completions: Sequence[TriedCompletion],
    references: Sequence[RewardRef],
    scored: Sequence[RewardedShard],
) -> TriedFunction:
    said = [each.rewards[name] for each in completions if not each.masked]
    scores = [score for score in said if score is not None]
    seconds = sum(each.timing.functions.get(name, 0.0) for each in references)
    failures = [failure for each in scored for failure in each.failures]
    return TriedFunction(
        name=name,
        weight=weight,
        mean=statistics.fmean(scores) if scores else None,
        std=statistics.stdev(scores) if len(scores) > 1 else None,
        num_scored=len(scores),
        num_abstained=len(said) - len(scores),
        failed_calls=sum(each.failed_calls.get(name, 0) for each in scored),
        masked=sum(each.num_completions for each in failures if each.function == name),
        seconds=seconds,
        latency_s=seconds / len(references),
    )
