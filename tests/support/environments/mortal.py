"""The same run by MORTAL's own workers, in this process: actor, rollout worker, reward worker."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.data.problem_files import keep_problems
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.actor import Actor
from mortal_steps.policy.batches import ScoredRollouts, TrainRequest
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.scores import reward_names
from mortal_steps.store import RunStore
from mortal_steps.types import (
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    Problem,
    RewardedShard,
    RewardRef,
    RewardRequest,
    StepResult,
)
from tests.support.environments.cases import CaseRun
from tests.support.environments.stock import Outcome, Step
from tests.support.policy.stock import Recorder


def run_mortal(run: CaseRun, folder: Path) -> Outcome:
    """Take the steps of a run, with one shard each."""
    workers = Workers(run, folder)
    try:
        for step in range(run.num_steps):
            workers.take(step)
    finally:
        workers.close()
    return workers.outcome


class Workers:
    """The workers of a run, and what they did."""

    def __init__(self, run: CaseRun, folder: Path) -> None:
        config = run.config
        self.run, self.store = run, RunStore(folder)
        keep_problems(self.store, run.batch(0), [])
        self.actor = Actor(
            run_dir=str(folder),
            plan=Plan(config).actor,
            fingerprint=config.fingerprint(),
            model_path=run.model_path,
            num_steps=run.num_steps,
        )
        self.sampler = RolloutWorker(
            run_dir=str(folder),
            model_path=run.model_path,
            plan=Plan(config).sampler,
            num_steps=run.num_steps,
        )
        self.scorer = RewardWorker(
            run_dir=str(folder), plan=Plan(config).scoring, num_steps=run.num_steps
        )
        (self.weights,) = self.actor.prepare(step=0).weights
        recorder = Recorder()
        self.actor._states.state.stepper._trainer.add_callback(recorder)
        self.outcome = Outcome(steps=[], weights=recorder.weights, metrics=[])

    def take(self, step: int) -> None:
        """Sample, score and train."""
        generated = self.sample(step)
        rewarded = self.score(generated)
        self.outcome.steps.append(
            self._step(
                self.store.read_record(generated.file, GeneratedShard),
                self.store.read_record(rewarded.file, RewardedShard),
            )
        )
        self.outcome.metrics.append(self.train(rewarded).metrics)

    def sample(self, step: int) -> GenerationRef:
        """Sample a step's episodes."""
        problems, folder = self.run.batch(step), f"steps/{step:06d}"
        return self.sampler.generate(
            request=GenerateRequest(
                stage="generate",
                step=step,
                shard=0,
                problems=self.store.write_record(f"{folder}/batch.json", problems, list[Problem]),
                start=0,
                stop=len(problems),
                num_generations=self.run.config.training.num_generations,
                sampling=self.run.config.sampling,
                weights=self.weights,
                output=f"{folder}/generations-0.parquet",
            )
        )

    def score(self, generated: GenerationRef) -> RewardRef:
        """Score them."""
        output = f"steps/{generated.step:06d}/rewards-0.parquet"
        return self.scorer.reward(
            request=RewardRequest(stage="reward", generation=generated, output=output)
        )

    def train(self, rewarded: RewardRef) -> StepResult:
        """Train on them."""
        batch = ScoredRollouts(rewards=[rewarded])
        request = TrainRequest(step=rewarded.step, batch=batch, publish=True)
        result = self.actor.train_step(request=request)
        self.weights = result.weights
        return result

    def _step(self, shard: GeneratedShard, scored: RewardedShard) -> Step:
        found = Step(rewards={name: [] for name in reward_names(self.run.config.rewards)})
        for group, rewards in zip(shard.groups, scored.rewards, strict=True):
            for completion, earned in zip(group.completions, rewards, strict=True):
                prompt = group.problem.prompt if completion.prompt is None else completion.prompt
                ids = group.prompt_ids if completion.prompt_ids is None else completion.prompt_ids
                found.prompts.append(prompt)
                found.prompt_ids.append(list(ids))
                found.completion_ids.append(list(completion.token_ids))
                found.masks.append(completion.loss_mask)
                found.messages.append([dict(message) for message in completion.messages])
                for name, score in earned.items():
                    found.rewards[name].append(score)
        return found

    def close(self) -> None:
        self.scorer.close()
        self.sampler.close()
