"""What is checked of a run that learns from rows: that TRL can prepare them."""

import contextlib
import logging
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import REHEARSAL, call_several
from mortal_steps.config import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    RewardsConfig,
    RolloutConfig,
    TrainingConfig,
)
from mortal_steps.data.prepared import Preparation, Prepared
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.orchestration.checking.data_lines import shortened
from mortal_steps.policy.algorithms.rows.epochs import epochs_of, num_steps
from mortal_steps.report.units import counted
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

SFT = "sft"
OF_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "staleness", "sync_weights_every")
"""Keys of `[rollout]` that nothing but sampling for train steps goes by."""
PREPARING = "preparing-"
"""Begins the names of folders with rows on their way into a run."""
TOLD_EVERY_S = 10.0
PROGRESS = re.compile(rb"([^\r\n:]+):\s+(\d+)%\|")
"""A progress bar of TRL's, such as `Tokenizing train dataset:  41%|####`."""


def check_source(data: DataConfig, rewards: RewardsConfig, algorithm: str) -> None:
    """Raise `ConfigError` without a dataset, for rewards, which nobody asks, and for what TRL does
    otherwise with rows."""
    if not data.source:
        raise ConfigError(
            f"data.source names no dataset, and algorithm.type = {algorithm!r} learns from the "
            "rows of one; name one with --dataset"
        )
    if rewards.are_named:
        raise ConfigError(
            f"[rewards] names {rewards.all_terms[0].full_name!r}, and algorithm.type = "
            f"{algorithm!r} learns from rows of the dataset, which are not scored; leave it out"
        )
    if not data.shuffle:
        raise ConfigError(
            f"data.shuffle = false: with algorithm.type = {algorithm!r}, TRL orders the rows; "
            "leave it out, and write training.trl.train_sampling_strategy = 'sequential'"
        )
    taken = {"train", "eval"} & data.eval_sets.keys()
    if taken:
        raise ConfigError(
            f"data.eval_sets.{taken.pop()}: TRL's own sets of rows have this name; choose another"
        )
    if data.on_long == "drop":
        raise ConfigError(
            f"data.on_long = 'drop': with algorithm.type = {algorithm!r}, TRL cuts rows to "
            "training.trl.max_length; leave it out"
        )


def check_form(first: Mapping[str, Any], text_column: str, prompt_column: str = "prompt") -> None:
    """Look at the first row of supervised fine-tuning, which may have several forms at a time, and
    whose prompt the dataset has in `prompt_column`. Raises `DataError` for prompts without
    completions, of which TRL says no more than a name."""
    forms = [name for name in ("messages", text_column) if name not in ("prompt", "completion")]
    others = [name for name in forms if first.get(name) is not None]
    if first.get("input_ids") is not None or first.get("prompt") is None or not others:
        return
    if first.get("completion") is None:
        left_out = "the prompts out with data.drop_columns = ['prompt']"
        if prompt_column != "prompt":
            left_out = f"data.prompt_column = {prompt_column!r} out"
        raise DataError(
            f"the rows have a column {prompt_column!r} of prompts, for which TRL looks for one "
            f"'completion', and they have none; leave {left_out} to learn from the column "
            f"{others[0]!r}"
        )
    if text_column in others and isinstance(first["prompt"], str):
        logger.warning(
            "the rows have the columns 'prompt' and 'completion', which are learned, and %r, "
            "besides: TRL then adds the end token to that alone, so that no completion ends with "
            "one; leave it out with data.drop_columns = [%r]",
            *(text_column, text_column),
        )


def warn_of_idle_keys(rollout: RolloutConfig, evaluation: EvaluationConfig, algorithm: str) -> None:
    """Warn of keys that are about sampling and scores, of which rows have none. What `mortal
    promote` goes by says nothing of the run itself."""
    default = RolloutConfig()
    chosen = {name: getattr(rollout, name) for name in OF_SAMPLING}
    idle = [f"rollout.{n} = {each!r}" for n, each in chosen.items() if each != getattr(default, n)]
    if idle:
        logger.warning(
            "%s: nothing is sampled with algorithm.type = %r, so it changes nothing; leave it out",
            *(" and ".join(idle), algorithm),
        )
    usual, judging = EvaluationConfig(), ("functions", "temperature", "num_generations")
    scored = [
        f"evaluation.{name} = {each!r}"
        for name in judging
        if (each := getattr(evaluation, name)) != getattr(usual, name)
    ]
    if scored:
        logger.warning(
            "%s: with algorithm.type = %r, held-out rows are judged by their loss; `mortal "
            "promote` alone samples and scores them",
            *(" and ".join(scored), algorithm),
        )
    if evaluation.decides:
        logger.warning(
            "evaluation.decides = %r: with algorithm.type = %r, held-out rows are judged by the "
            "loss over all of them, and so are checkpoints and training.until; `mortal promote` "
            "alone decides by the set. training.until.metric = 'eval_%s_loss' is its loss",
            *(evaluation.decides, algorithm, evaluation.decides),
        )


def warn_of_longer(model: ModelConfig, longest: int) -> None:
    """Warn of prepared rows that are longer than a limit which a person has set, and which is for
    sampling."""
    if "max_model_len" in model.model_fields_set and longest > model.max_model_len:
        logger.warning(
            "model.max_model_len = %d limits sampling alone: no row is cut to it, and the longest "
            "has %s; to cut rows, set training.trl.max_length",
            model.max_model_len,
            counted(longest, "token"),
        )


def prepare(
    actor: WorkerSpec,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    runs_dir: Path,
    training: TrainingConfig,
    say: Callable[[str], None],
    tell: Callable[[str], None],
    show: Callable[[str], None] | None,
) -> Prepared:
    """Have TRL prepare the rows in a process of its own, and tell what came of them; `say` gets how
    far it is, and `show` the lines of a dry run."""
    scratch = Scratch(runs_dir.absolute(), PREPARING)
    given = {"train": train, "held_out": held_out, "folder": str(scratch.path)}
    try:
        with tempfile.TemporaryDirectory() as name, _saying_how_far(Path(name), say):
            came: Preparation = call_several(actor, "prepare_rows", [given], Path(name))[0]
    except BaseException:
        scratch.remove()
        raise
    count = came.num_rows
    steps, epoch = num_steps(count, training), epochs_of(count, training).steps_per_epoch
    became = f" became {counted(count, 'row')} to train on" if count != len(train) else ""
    tell(
        f"{'rows':<11}{counted(len(train), 'row')}{became}: {counted(steps, 'step')}, of which an "
        f"epoch has {epoch:,}"
    )
    if show is not None:
        show(f"{'':<11}the first as the model reads it; the longest: {came.longest:,} tokens")
        for part, text in came.first.items():
            show(f"{'':<13}{part:<9} {shortened(text)!r}")
    return Prepared(folder=scratch.path, num_rows=count, longest=came.longest, scratch=scratch)


@contextlib.contextmanager
def _saying_how_far(log_dir: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Say every few seconds what the worker's newest progress bar shows, while the block runs."""
    log, done = log_dir / f"{REHEARSAL}.log", threading.Event()

    def follow() -> None:
        while not done.wait(TOLD_EVERY_S):
            bars = PROGRESS.findall(log.read_bytes()) if log.exists() else []
            if bars:
                what, percent = bars[-1]
                say(
                    f"preparing the rows: {what.decode(errors='replace').lower()}, {int(percent)} %"
                )

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
