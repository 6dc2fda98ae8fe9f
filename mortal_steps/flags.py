"""The common options of a run as flags: each another way to write a key of the configuration.

`mortal train`, the commands that try a run out, and `modal run` take them all from this table.
Imports nothing, so that `--help` is quick.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
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
    _: KW_ONLY
    value: str | None = None
    """What stands for its value in the help; None: N for an int, else the flag's name."""
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
        return f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str | None:
        """What stands for its value in the help; None for a flag that takes none."""
        if self.kind is bool:
            return None
        return self.value or ("N" if self.kind is int else self.name.upper())

    @property
    def description(self) -> str:
        """The help, with the keys."""
        keys = [*(self.switches or (self.key,)), *filter(None, [self.single_node_key])]
        return f"{self.help} ({', '.join(keys)})"

    def written(self, given: Any) -> str:
        if isinstance(given, list | tuple):
            return " ".join(f"{self.option} {one}" for one in given)
        if isinstance(given, bool):
            return self.option if given else self.option.replace("--", "--no-", 1)
        return f"{self.option} {given}"

    def writes(self, given: Any, *, single_node: bool) -> dict[str, Any]:
        """Values by key."""
        if self.switches:
            return dict(self.switches) if given else {}
        key = self.single_node_key if single_node and self.single_node_key else self.key
        return {key: None if self.all_at_zero and given == 0 else given}


# fmt: off
PANELS: Mapping[str, tuple[Flag, ...]] = {
    "Model, data and rewards": (
        Flag("model", str, "model.name_or_path",
             "Model to train: a name on the hub, or a folder."),
        Flag("dataset", str, "data.source",
             "Where the prompts are: a file, a folder, or a name on the hub.",
             others=("train_dataset",)),
        Flag("max_samples", int, "data.max_samples",
             "Use only the first N rows; 0: all.", all_at_zero=True),
        Flag("algorithm", str, "algorithm.type",
             "What is learned, and how: grpo, rloo, distillation, opd, sft, dpo, kto, reward.",
             value="NAME"),
        Flag("reward", list, "rewards.functions",
             "Reward, such as rewards.py:correct or sandbox. May be repeated.",
             others=("reward_funcs",)),
    ),
    "Training": (
        Flag("max_steps", int, "training.max_steps",
             "Number of train steps; -1: as many as the epochs take."),
        Flag("epochs", float, "training.num_epochs",
             "Passes over the dataset.", value="N", others=("num_epochs",)),
        Flag("batch_size", int, "training.batch_size",
             "Prompts per train step."),
        Flag("num_generations", int, "training.num_generations",
             "Completions per prompt."),
        Flag("learning_rate", float, "training.learning_rate",
             "Peak learning rate.", value="RATE"),
        Flag("loss_type", str, "training.loss_type",
             "Loss: grpo, dapo, dr_grpo and others.", value="LOSS"),
        Flag("beta", float, "training.beta",
             "Coefficient of the KL penalty."),
        Flag("epsilon", float, "training.epsilon",
             "Clipping range of the probability ratio."),
        Flag("scale_rewards", str, "training.scale_rewards",
             "Divide advantages by the standard deviation over each group, over the batch, or "
             "not at all: group, batch, none.",
             value="OVER"),
        Flag("max_completion_length", int, "training.max_completion_length",
             "Longest completion to train on, in tokens."),
        Flag("use_lora", bool, "training.use_lora",
             "Train a LoRA adapter instead of the whole model."),
        Flag("save_steps", int, "checkpoints.save_steps",
             "Save a checkpoint every N steps."),
    ),
    "Sampling": (
        Flag("max_tokens", int, "rollout.max_tokens",
             "Most tokens to sample per completion."),
        Flag("max_model_len", int, "model.max_model_len",
             "Longest prompt plus completion, in tokens."),
        Flag("num_rollout_workers", int, "rollout.num_rollout_workers",
             "Number of workers that sample."),
        Flag("sync_weights_every", int, "rollout.sync_weights_every",
             "Publish new weights to them every N steps."),
        Flag("weight_sync", str, "rollout.weight_sync",
             "How they load new weights: reload, volume, checkpoint or direct.",
             value="WAY", others=("weight_sync_method",)),
    ),
    "Where it runs": (
        Flag("backend", str, "compute.backend",
             "local: this machine; modal: containers on Modal; ray: a Ray cluster."),
        Flag("actor_gpu", str, "compute.modal.actor",
             "GPU on Modal that trains.", value="GPU", single_node_key="compute.modal.gpu"),
        Flag("rollout_gpu", str, "compute.modal.rollout",
             "GPU on Modal of each worker that samples.", value="GPU"),
        Flag("simple_mode", bool, "compute.mode",
             "Train and sample in turn on one GPU, with transformers instead of vLLM.",
             switches={"compute.mode": "single_node", "rollout.engine": "transformers"}),
    ),
}
# fmt: on
"""By the panel of the help that they stand in, in its order."""

FLAGS = tuple(flag for flags in PANELS.values() for flag in flags)

NOT_ON_MODAL = ("backend",)
"""Flags whose value `modal run` says by itself."""


def in_place_of_flags(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    """Return the function with `parameters` for `**flags` in its signature, after its own; all are
    passed by name."""
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
    """Make Modal's local entrypoint take the flags: plain types, one text for a list."""
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
