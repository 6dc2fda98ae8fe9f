"""The common options of a run as flags: each another way to write a key of the configuration.

`mortal train`, the commands that try a run out, and `modal run` take them all from this table.
Imports nothing, so that `--help` is quick.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL, TRAINING, SAMPLING, PLACE = (
    "Model, data and rewards",
    "Training",
    "Sampling",
    "Where it runs",
)
"""Panels of the help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One flag. Without a value on the command line it is None and writes nothing."""

    name: str
    """With underscores: `max_steps` is --max-steps."""
    kind: type
    """str, int, float or bool; `list` for text that may be repeated."""
    key: str
    """Of the configuration, that it writes."""
    help: str
    """What it means, without the key."""
    panel: str
    metavar: str | None = None
    single_node_key: str | None = None
    """What it writes in the place of `key` where `compute.mode` is single_node."""
    switches: Mapping[str, Any] = field(default_factory=dict)
    """What it writes where it is on, if it takes no value; it writes nothing where it is off."""
    all_at_zero: bool = False
    """Whether 0 means that there is no limit."""
    others: tuple[str, ...] = ()
    """Other names, which `modal run` takes as well."""

    @property
    def option(self) -> str:
        """Such as --max-steps."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def told(self) -> str:
        """The help, with the keys."""
        keys = [*(self.switches or (self.key,)), *filter(None, [self.single_node_key])]
        return f"{self.help} ({', '.join(keys)})"

    def writes(self, given: Any, *, single_node: bool) -> dict[str, Any]:
        """Values by key."""
        if self.switches:
            return dict(self.switches) if given else {}
        key = self.single_node_key if single_node and self.single_node_key else self.key
        return {key: None if self.all_at_zero and given == 0 else given}


FLAGS = (
    Flag(
        name="model",
        kind=str,
        key="model.name_or_path",
        help="Model to train: a name on the hub, or a folder.",
        panel=MODEL,
        metavar="MODEL",
    ),
    Flag(
        name="dataset",
        kind=str,
        key="data.source",
        help="Where the prompts are: a file, a folder, or a name on the hub.",
        panel=MODEL,
        metavar="DATASET",
        others=("train_dataset",),
    ),
    Flag(
        name="max_samples",
        kind=int,
        key="data.max_samples",
        help="Use only the first N rows; 0: all.",
        panel=MODEL,
        metavar="N",
        all_at_zero=True,
    ),
    Flag(
        name="reward",
        kind=list,
        key="rewards.functions",
        help="Reward, such as rewards.py:correct or sandbox. May be repeated.",
        panel=MODEL,
        metavar="REWARD",
        others=("reward_funcs",),
    ),
    Flag(
        name="max_steps",
        kind=int,
        key="training.max_steps",
        help="Number of train steps; -1: as many as the epochs take.",
        panel=TRAINING,
        metavar="N",
    ),
    Flag(
        name="epochs",
        kind=int,
        key="training.num_epochs",
        help="Passes over the dataset.",
        panel=TRAINING,
        metavar="N",
        others=("num_epochs",),
    ),
    Flag(
        name="batch_size",
        kind=int,
        key="training.batch_size",
        help="Prompts per train step.",
        panel=TRAINING,
        metavar="N",
    ),
    Flag(
        name="num_generations",
        kind=int,
        key="training.num_generations",
        help="Completions per prompt.",
        panel=TRAINING,
        metavar="N",
    ),
    Flag(
        name="learning_rate",
        kind=float,
        key="training.learning_rate",
        help="Peak learning rate.",
        panel=TRAINING,
        metavar="RATE",
    ),
    Flag(
        name="loss_type",
        kind=str,
        key="training.loss_type",
        help="Loss: grpo, dapo, dr_grpo and others.",
        panel=TRAINING,
        metavar="LOSS",
    ),
    Flag(
        name="beta",
        kind=float,
        key="training.beta",
        help="Coefficient of the KL penalty.",
        panel=TRAINING,
        metavar="BETA",
    ),
    Flag(
        name="epsilon",
        kind=float,
        key="training.epsilon",
        help="Clipping range of the probability ratio.",
        panel=TRAINING,
        metavar="EPSILON",
    ),
    Flag(
        name="scale_rewards",
        kind=str,
        key="training.scale_rewards",
        help="Divide advantages by the standard deviation of a group or batch, or none.",
        panel=TRAINING,
        metavar="OVER",
    ),
    Flag(
        name="max_completion_length",
        kind=int,
        key="training.max_completion_length",
        help="Longest completion to train on, in tokens.",
        panel=TRAINING,
        metavar="N",
    ),
    Flag(
        name="use_lora",
        kind=bool,
        key="training.use_lora",
        help="Train a LoRA adapter instead of the whole model.",
        panel=TRAINING,
    ),
    Flag(
        name="save_steps",
        kind=int,
        key="checkpoints.save_steps",
        help="Save a checkpoint every N steps.",
        panel=TRAINING,
        metavar="N",
    ),
    Flag(
        name="max_tokens",
        kind=int,
        key="rollout.max_tokens",
        help="Most tokens to sample per completion.",
        panel=SAMPLING,
        metavar="N",
    ),
    Flag(
        name="max_model_len",
        kind=int,
        key="model.max_model_len",
        help="Longest prompt plus completion, in tokens.",
        panel=SAMPLING,
        metavar="N",
    ),
    Flag(
        name="num_rollout_workers",
        kind=int,
        key="rollout.num_rollout_workers",
        help="Number of workers that sample.",
        panel=SAMPLING,
        metavar="N",
    ),
    Flag(
        name="sync_weights_every",
        kind=int,
        key="rollout.sync_weights_every",
        help="Publish new weights to them every N steps.",
        panel=SAMPLING,
        metavar="N",
    ),
    Flag(
        name="weight_sync",
        kind=str,
        key="rollout.weight_sync",
        help="How they load new weights: reload, volume or checkpoint.",
        panel=SAMPLING,
        metavar="WAY",
        others=("weight_sync_method",),
    ),
    Flag(
        name="backend",
        kind=str,
        key="compute.backend",
        help="local: processes on this machine; modal: containers on Modal.",
        panel=PLACE,
        metavar="BACKEND",
    ),
    Flag(
        name="actor_gpu",
        kind=str,
        key="compute.modal.actor",
        help="GPU on Modal that trains.",
        panel=PLACE,
        metavar="GPU",
        single_node_key="compute.modal.gpu",
    ),
    Flag(
        name="rollout_gpu",
        kind=str,
        key="compute.modal.rollout",
        help="GPU on Modal of each worker that samples.",
        panel=PLACE,
        metavar="GPU",
    ),
    Flag(
        name="simple_mode",
        kind=bool,
        key="compute.mode",
        help="Train and sample in turn in one place, with transformers in place of vLLM.",
        panel=PLACE,
        switches={"compute.mode": "single_node", "rollout.engine": "transformers"},
    ),
)
"""In the order of the help."""

NOT_ON_MODAL = ("backend",)
"""Flags whose value `modal run` says by itself."""


def in_place_of_flags(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    """The function with `parameters` where it has `**flags`, for those who read a signature.

    Its own parameters come first; all of them are passed by name.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]

    @functools.wraps(function)
    def called(**given: Any) -> Any:
        return function(**given)

    whole = signature.replace(parameters=[*own, *parameters])
    called.__signature__ = whole  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in whole.parameters.values()}
    return called


def with_modal_flags(function: Callable[..., Any]) -> Any:
    """For a local entrypoint of Modal's, which makes options of typed parameters: plain types, and
    one text for what may be repeated."""
    plain: dict[type, type] = {list: str}
    return in_place_of_flags(
        function,
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=plain.get(flag.kind, flag.kind) | None,
            )
            for flag in FLAGS
            if flag.name not in NOT_ON_MODAL
            for name in (flag.name, *flag.others)
        ],
    )
