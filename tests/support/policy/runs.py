"""Runs whose store holds what rollout and reward workers would have committed."""

import dataclasses
import os
import signal
from pathlib import Path

from mortal_steps.data.problem_files import keep_problems
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.actor import Actor
from mortal_steps.policy.batches import ScoredRollouts, TrainRequest
from mortal_steps.schedule import sampling_version
from mortal_steps.scores import reward_weights
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import (
    GeneratedGroup,
    GeneratedShard,
    GenerationRef,
    Problem,
    RewardedShard,
    RewardRef,
    StageTiming,
)
from tests.support.policy.kept import Kept, in_shards, sampled
from tests.support.policy.rollouts import make_batch

NUM_STEPS = 5
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
LORA = {"use_lora": True, "lora": {"dropout": 0.2}}
ADAPTER = {"use_lora": True, "lora": {"dropout": 0.2, "publish": "adapter"}}
RLOO = {"algorithm": {"type": "rloo", "normalize_advantages": True}}
SETUPS = {
    "full": {},
    "lora": LORA,
    "accumulated": ACCUMULATED,
    "lora-accumulated": {**ADAPTER, **ACCUMULATED},
    "rloo": {**RLOO, **ADAPTER, **ACCUMULATED},
    "cast": {"rollout": {"dtype": "bfloat16"}},
    "moving-reference": {
        **ACCUMULATED,
        "trl": {
            "sync_ref_model": True,
            "ref_model_sync_steps": 3,
            "use_adaptive_entropy": True,
            "entropy_target": 5.0,
        },
    },
}


@dataclasses.dataclass
class MadeRun:
    """A run directory and the actor's arguments."""

    store: RunStore
    config: object
    model_path: str
    num_steps: int
    kept: Kept | None = None

    def actor(self):
        return Actor(
            run_dir=str(self.store.root),
            plan=Plan(self.config).actor,
            fingerprint=self.config.fingerprint(),
            model_path=self.model_path,
            num_steps=self.num_steps,
        )

    def request(self, step, *, publish=True, content=None, side_metrics=None):
        """Commit the step's rollouts in two shards; `content` makes those of another step,
        `side_metrics` is what reward functions report beside the scores."""
        content, chosen = step if content is None else content, None
        if self.kept is None:
            groups = make_batch(self.config, content).groups
            half = len(groups) // 2
            shards = [groups[:half], groups[half:]]
        else:
            groups = sampled(self.config, content, self.kept)
            shards, chosen = in_shards(groups, content, self.kept)
        rewards = [
            self._commit(step, shard, groups, side_metrics or {})
            for shard, groups in enumerate(shards)
        ]
        batch = ScoredRollouts(rewards=rewards, kept=chosen)
        return TrainRequest(step=step, batch=batch, publish=publish)

    def _commit(self, step, shard, groups, side_metrics):
        version = sampling_version(self.config.rollout, step)
        generated = GeneratedShard(
            step=step,
            shard=shard,
            policy_version=version,
            groups=[
                GeneratedGroup(
                    problem=group.problem,
                    prompt_ids=group.prompt_ids,
                    completions=[rollout.completion for rollout in group.rollouts],
                )
                for group in groups
            ],
        )
        folder = f"steps/{step:06d}"
        file = self.store.write_record(
            f"{folder}/generations-{shard}.parquet", generated, GeneratedShard
        )
        rewarded = RewardedShard(
            step=step,
            shard=shard,
            generation_sha256=file.sha256,
            rewards=[[rollout.rewards for rollout in group.rollouts] for group in groups],
            metrics=side_metrics,
            teacher_logprobs=_said_of(groups),
        )
        timing = StageTiming(stage="generate", step=step)
        generation = GenerationRef(
            step=step,
            shard=shard,
            file=file,
            num_completions=8,
            num_tokens=40,
            policy_version=version,
            timing=timing,
        )
        return RewardRef(
            step=step,
            shard=shard,
            file=self.store.write_record(
                f"{folder}/rewards-{shard}.parquet", rewarded, RewardedShard
            ),
            generation=generation,
            reward_sum=0.0,
            num_scored=0,
            timing=timing,
        )

    def train(self, actor, steps):
        """Take these steps; the results."""
        return [actor.train_step(request=self.request(step)) for step in steps]

    def state_digests(self, actor, step):
        """Digests of all that makes the state after `step` train steps: weights, optimizer, ..."""
        folder = self.store.path(actor.checkpoint(step=step, best_score=None).path)
        return {path.name: digest_file(path) for path in folder.iterdir()} | {
            "results": [
                self.store.path(f"steps/{done:06d}/result.json").read_bytes()
                for done in range(step)
            ]
        }


def make_run(folder: Path, config, model_path, *, num_steps=5, kept=None):
    """Return a run directory with its problems; `kept`: what a selection keeps of each step."""
    store = RunStore(folder)
    problems = [Problem(id="train-0", prompt="abc")]
    keep_problems(store, problems, [])
    assert len(reward_weights(config.rewards)) == 2
    return MadeRun(
        store=store, config=config, model_path=model_path, num_steps=num_steps, kept=kept
    )


def _said_of(groups):
    """Return what teachers say of the groups, where they have any."""
    said = [rollout.teacher_logprobs for group in groups for rollout in group.rollouts]
    return said if any(said) else ()


def train_until_killed(run: MadeRun, num_whole_steps: int) -> None:
    """Take so many steps, then die while publishing the next one's weights. Never returns."""
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, range(num_whole_steps))
    actor.checkpoint(step=num_whole_steps, best_score=None)
    run.train(actor, [num_whole_steps])

    def export_half_and_die(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    actor._states.state.stepper.export_weights = export_half_and_die
    run.train(actor, [num_whole_steps + 1])


def untimed(answer):
    """Return what an actor answers, without how long it took."""
    if hasattr(answer, "warnings"):  # each is told once
        answer = dataclasses.replace(answer, warnings=())
    return dataclasses.replace(answer, timing=None)
