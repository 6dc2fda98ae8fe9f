"""One step of stock TRL, and the same of MORTAL's workers, with the same model, rows and engine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.episodes import shop
from benchmarks.episodes.scripted import PROMPT, ScriptedEngine
from mortal_steps.config import ModelConfig, RolloutConfig, RunConfig
from mortal_steps.types import GeneratedShard, RewardedShard, SamplingParams
from tests.support.environments.cases import CaseRun
from tests.support.environments.mortal import Workers

ENGINE = f"{ScriptedEngine.__module__}:{ScriptedEngine.__name__}"
MAX_TOKENS = 1024
SAMPLING = SamplingParams(max_tokens=MAX_TOKENS)
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What a step took, and what came of it."""

    seconds: float
    cpu_s: float
    """CPU time, with that of the processes of environments."""
    environment_s: float
    """Of it, between two turns of the model."""
    scores: Sequence[float | None]
    advantages: Sequence[float]
    texts: Sequence[str]


def _cpu_s() -> float:
    """CPU time of this process and of those below it, ended ones included."""
    below = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(each.cpu_times()[:4]) for each in below)


class Stock(TrainerCallback):
    """`GRPOTrainer(environment_factory=Shop)`, whose turns the engine says."""

    def __init__(
        self, folder: Path, model: str, rows: Sequence[Mapping[str, Any]], *, generations: int
    ) -> None:
        self.engine: Any = ScriptedEngine(  # type: ignore[abstract]
            model_path=model,
            model=ModelConfig(name_or_path=model),
            rollout=RolloutConfig(),
            tokenizer=lambda: AutoTokenizer.from_pretrained(model),
        )
        num_rows = len(rows) * generations
        arguments = GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=num_rows,
            num_generations=generations,
            max_completion_length=MAX_TOKENS,
            max_steps=1,
            learning_rate=1e-6,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        self._trainer = GRPOTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": PROMPT, **row} for row in rows]),
            environment_factory=shop.Shop,
            callbacks=[self],
        )
        self._trainer.remove_callback(PrinterCallback)
        self._trainer._generate_single_turn = self._sampled
        self._tool_loop, self._trainer._tool_call_loop = self._trainer._tool_call_loop, self._timed

    def step(self) -> Step:
        """Take a step."""
        self._trainer.train()
        assert self._step is not None
        return self._step

    def _sampled(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        said = self.engine.sample(prompt_ids, [0] * len(prompt_ids), SAMPLING)
        return [list(tokens.token_ids) for tokens in said], None

    def _timed(self, *args: Any) -> Any:
        began, busy_s = time.perf_counter(), self.engine.busy_s
        answer = self._tool_loop(*args)
        self._environment_s = time.perf_counter() - began - (self.engine.busy_s - busy_s)
        return answer

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began, self._cpu_s = time.perf_counter(), _cpu_s()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        seconds, logs = time.perf_counter() - self._began, self._trainer._logs
        self._step = Step(
            seconds=seconds,
            cpu_s=_cpu_s() - self._cpu_s,
            environment_s=self._environment_s,
            scores=list(logs["rewards"]["Shop"]),
            advantages=list(logs["advantages"]),
            texts=[str(messages) for messages in logs["completion"]],
        )


class Mortal:
    """Actor, rollout worker and reward worker of a run, in this process."""

    def __init__(
        self,
        folder: Path,
        model: str,
        rows: Sequence[Mapping[str, Any]],
        *,
        generations: int,
        **environment: Any,
    ) -> None:
        training = {
            "batch_size": len(rows),
            "num_generations": generations,
            "max_completion_length": MAX_TOKENS,
            "gradient_checkpointing": False,
            # As with the transformers engine itself; stock TRL is not told log-probabilities.
            "importance_sampling_correction": False,
        }
        run = CaseRun(
            config=RunConfig.model_validate(
                {
                    "environment": {"factory": f"{shop.__file__}:Shop", **environment},
                    "rollout": {"engine": ENGINE, "max_tokens": MAX_TOKENS},
                    "rewards": {"terms": [{"type": "get_reward", "environment": "Shop"}]},
                    "training": training,
                }
            ),
            model_path=model,
            rows=[{"prompt": PROMPT, **row} for row in rows],
            functions=(),
            weights=(),
            tools=(),
            factory=shop.Shop,
            num_steps=100,
        )
        self._workers = Workers(run, folder)
        self._workers.sampler.start()
        self.engine: Any = self._workers.sampler._engine

    def step(self, number: int) -> Step:
        """Take a step, with all that its stages commit."""
        workers = self._workers
        began, cpu_s = time.perf_counter(), _cpu_s()
        workers.sampler.sync_weights(weights=workers.weights)
        synced, busy_s = time.perf_counter(), self.engine.busy_s
        generated = workers.sample(number)
        environment_s = time.perf_counter() - synced - (self.engine.busy_s - busy_s)
        rewarded = workers.score(generated)
        workers.train(rewarded)
        seconds = time.perf_counter() - began
        state: Any = workers.actor._states.state
        shard = workers.store.read_record(generated.file, GeneratedShard)
        scored = workers.store.read_record(rewarded.file, RewardedShard)
        return Step(
            seconds=seconds,
            cpu_s=_cpu_s() - cpu_s,
            environment_s=environment_s,
            scores=[score for rows in scored.rewards for row in rows for score in row.values()],
            advantages=list(state.stepper._trainer._logs["advantages"]),
            texts=[each.text for group in shard.groups for each in group.completions],
        )

    def close(self) -> None:
        """End the processes of environments."""
        self._workers.close()
