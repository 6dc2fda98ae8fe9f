"""`MortalTrainer`: a run, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mortal.trainer.messages import Request
from mortal.trainer.modes import Distributed, Mode, SingleNode
from mortal.trainer.objects.datasets import source_of
from mortal.trainer.objects.rewards import Reward, terms_of
from mortal.trainer.owner import perform
from mortal.trainer.result import TrainingResult
from mortal.trainer.settings import DEFAULT_DATASET, DEFAULT_EVAL_STEPS, configure, fit_max_tokens
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError, RunNotFoundError
from mortal_steps.runs.run import find_run, list_runs, new_run_id


class MortalTrainer:
    """Trains a model by GRPO, as a run that survives kills: the flow of `mortal train`."""

    def __init__(
        self,
        model: Any = "Qwen/Qwen2.5-0.5B-Instruct",
        reward_funcs: Reward | Sequence[Reward] | None = None,
        *,
        mode: Mode = Distributed(),  # noqa: B008 - immutable
        reward_weights: Sequence[float] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        peft_config: Any = None,
        num_generations: int = 4,
        batch_size: int = 8,
        learning_rate: float = 5e-6,
        max_steps: int = -1,
        num_epochs: int = 5,
        loss_type: str = "dapo",
        beta: float = 0.0,
        epsilon: float = 0.2,
        scale_rewards: str | bool = "group",
        max_completion_length: int = 1024,
        max_tokens: int = 8000,
        max_model_len: int = 16384,
        use_lora: bool = False,
        gradient_checkpointing: bool = True,
        algorithm: str = "grpo",
        backend: Literal["local", "modal"] = "local",
        run_id: str | None = None,
        runs_dir: str | Path = "runs",
        report_to: str | Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(mode, SingleNode | Distributed):
            raise ConfigError(f"mode = {mode!r}: write SingleNode(...) or Distributed(...)")
        for name, given in (("processing_class", processing_class), ("peft_config", peft_config)):
            if given is not None:
                raise ConfigError(f"MortalTrainer({name}=...) is not taken yet; leave it out")
        self.mode = mode
        runs = str(runs_dir)
        decided: dict[str, Any] = mode.settings()
        decided |= {"model.name_or_path": str(model)}
        if train_dataset is None:
            decided |= DEFAULT_DATASET
        else:
            decided["data.source"] = source_of(train_dataset, runs, "train_dataset")
        if eval_dataset is not None:
            decided["data.eval_source"] = source_of(eval_dataset, runs, "eval_dataset")
            if "evaluation.eval_steps" not in (config or {}):
                decided["evaluation.eval_steps"] = DEFAULT_EVAL_STEPS
        decided["rewards.terms"] = terms_of(reward_funcs, reward_weights, runs)
        if run_id is not None:
            decided["run_id"] = run_id
        if report_to is not None:
            decided["logging.report_to"] = report_to
        parameters = {
            "num_generations": num_generations,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "max_steps": max_steps,
            "num_epochs": num_epochs,
            "loss_type": loss_type,
            "beta": beta,
            "epsilon": epsilon,
            "scale_rewards": scale_rewards,
            "max_completion_length": max_completion_length,
            "max_tokens": max_tokens,
            "max_model_len": max_model_len,
            "use_lora": use_lora,
            "gradient_checkpointing": gradient_checkpointing,
            "algorithm": algorithm,
            "backend": backend,
            "runs_dir": runs,
        }
        self.config: RunConfig = _fitting(configure(parameters, decided, config))

    @property
    def run_id(self) -> str | None:
        """Id of the run; None before it has one."""
        return self.config.run_id

    def train(self, resume: bool | str | None = None, detach: bool = False) -> TrainingResult:
        """Train to the end of the run, or go on with it.

        A trainer has one run, which a second call continues. `resume`: the id of a run to continue,
        or True for the newest run of this name in the runs directory. `detach`: let the flow run in
        a container on Modal, and return at once.

        Raises the `MortalError` that ended the run, and `KeyboardInterrupt` after one has stopped
        it in order.
        """
        self._take_run(resume)
        self._say_where()
        perform(Request(action="detach" if detach else "train", config=self.config))
        return TrainingResult(Path(self.config.runs_dir) / str(self.config.run_id))

    def _take_run(self, resume: bool | str | None) -> None:
        runs_dir, run_id = Path(self.config.runs_dir), self.config.run_id
        if isinstance(resume, str):
            run_id = find_run(runs_dir, resume).info.run_id
        elif resume and run_id is None:
            runs = [run for run in list_runs(runs_dir) if run.config.name == self.config.name]
            if not runs:
                raise RunNotFoundError(
                    f"train(resume=True): no run named {self.config.name!r} in {runs_dir}; leave "
                    "resume out to begin one"
                )
            run_id = runs[-1].info.run_id
        elif run_id is None:
            run_id = new_run_id(self.config)
        self.config = self.config.model_copy(update={"run_id": run_id})

    def _say_where(self) -> None:
        print(self._where(), flush=True)  # noqa: T201 - it is what the trainer says

    def _where(self) -> str:
        taking = self.mode.containers()
        if self.config.compute.backend == "modal":
            return f"running on Modal: {taking}"
        return f"running on this machine (backend='modal' would take {taking})"


def _fitting(config: RunConfig) -> RunConfig:
    """With room for prompts in the model's context."""
    from mortal_steps.orchestration.settling import find_context

    return fit_max_tokens(config, find_context(config.model))
