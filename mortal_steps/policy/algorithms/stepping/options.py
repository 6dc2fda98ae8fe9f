"""From a run's configuration to one of TRL's, and from its complaints to ours."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.utils import is_liger_kernel_available

from mortal_steps.config.field_metadata import trl_values
from mortal_steps.config.training import FULL
from mortal_steps.config.trl_options import (
    UNLIMITED,
    check_names,
    idleness,
    loading_options,
    options_of,
    unrepeatable_options,
)
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.models.hub import tokenizer_folder
from mortal_steps.models.local_folder import read_type
from mortal_steps.policy.algorithms.stepping.lora import (
    check_type,
    lora_config,
    quantization_config,
)
from mortal_steps.policy.algorithms.stepping.model_options import check_model_options
from mortal_steps.policy.algorithms.stepping.trls import trls
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.gpu import has_bfloat16, on_one_gpu
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.ranks.world import num_ranks

WORTH_A_WARNING = 0.9
"""Share of weights that an update changes below which a warning is due."""
FRACTION_BITS = {"bfloat16": 7, "float16": 10}
NOT_INSTALLED = re.compile("install|import")
"""In what transformers says of an optimizer whose package is missing."""


def check_options(plan: TrainerPlan, algorithm: TrlHooks) -> tuple[str, ...]:
    """Build TRL's configuration of a run and drop it; return a sentence for each option without
    effect, and for a count that TRL takes otherwise.

    May run on a machine without the actor's GPU and packages: what only there could be refused
    passes here. Raises what `check_model_options` raises.
    """
    elsewhere = not plan.here and not torch.cuda.is_available()
    built = build_options(
        plan, algorithm, num_steps=1, output_dir=Path("unused"), use_cpu=elsewhere
    )
    lora_config(plan.training)
    if plan.here:
        quantization_config(plan.model)
        _check_packages(built)
    check_model_options(plan.training, plan.model, here=plan.here)
    chosen = plan.training.trl
    unrepeatable = unrepeatable_options(chosen) if plan.training.deterministic else ()
    idle = (
        _idle_options(chosen, algorithm.trl_config)
        + unrepeatable
        + _idle_lora(plan)
        + _idle_sharding(plan)
    )
    return idle + _counted_in_batches(plan) + _lost_updates(plan)


def build_options(
    plan: TrainerPlan,
    algorithm: TrlHooks,
    *,
    num_steps: int,
    output_dir: Path,
    use_cpu: bool = False,
    autocast: bool | None = None,
) -> Any:
    """Build TRL's configuration of a run of `num_steps` train steps. Raises `ConfigError`.

    Keys that belong to an option that the algorithm's configuration does not have are left alone.
    `autocast` is whether matrices are multiplied in bfloat16 where the configuration says nothing
    about it; by default that is TRL's own default on a GPU, and off on the CPU.
    """
    kind: type[TrainingArguments] = trls(algorithm.trl_config)
    own = algorithm.options()
    given = plan.training.trl
    check_names(given, kind.__name__)
    for option in given:
        if option in own:
            raise ConfigError(f"training.trl.{option} is set by algorithm.{option}; use that")
    given = {n: value if UNLIMITED.get(n) != value else None for n, value in given.items()}
    for name, value in given.items():
        check_type(kind, name, value, key=f"training.trl.{name}")
    chosen = {
        name: value for name, value in given.items() if not idleness(name, algorithm.trl_config)
    }
    ours = our_options(plan, kind, num_steps=num_steps, output_dir=output_dir)
    ours |= algorithm.options_of_run(plan.training) | own
    # Said where there is nothing else, or transformers refuses autocast.
    ours["use_cpu"] = use_cpu or not torch.accelerator.is_available()
    if autocast is not None:
        ours["bf16"] = autocast and not chosen.get("fp16")
    device = {} if ours["use_cpu"] else on_one_gpu()
    loading = ours["model_init_kwargs"] | device | loading_options(chosen)
    chosen = chosen | {"model_init_kwargs": loading}
    if (teachers := "teacher_model_init_kwargs") in ours:
        ours[teachers] = ours[teachers] | device
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            built = kind(**(ours | chosen))
    except (ValueError, TypeError, NotImplementedError) as error:
        keys = ", ".join(f"training.trl.{name} = {value!r}" for name, value in given.items())
        raise ConfigError(f"{keys or 'training'}: {kind.__name__} refuses this: {error}") from error
    algorithm.check_built(plan.training, plan.rollout, built)
    return built


def our_options(
    plan: TrainerPlan, kind: type[TrainingArguments], *, num_steps: int, output_dir: Path
) -> dict[str, Any]:
    """Options of the `kind` that the run decides: the keys that are options of TRL's (`marks.Trl`)
    and what follows from others. Of these, `[training.trl]` may set `bf16` alone.

    On a GPU that has bfloat16 this is TRL's default: float32 weights, matrices multiplied in
    bfloat16. TRL would also let a GPU emulate it.
    """
    training = plan.training
    pieces = training.steps_per_generation * num_ranks()
    held = trl_values(plan.training) | trl_values(plan.rollout)
    decided = held | {
        "seed": plan.seed,
        "bf16": has_bfloat16() and not training.trl.get("fp16"),
        "gradient_accumulation_steps": training.accumulation_steps,
        "output_dir": str(output_dir),
        "max_steps": num_steps * training.optimizer_steps_per_batch,
        "per_device_train_batch_size": training.rows // pieces,
        "reward_weights": list(plan.reward_weights.values()) or None,
        "vllm_importance_sampling_correction": plan.corrects_importance,
        "model_init_kwargs": {
            "dtype": plan.model.dtype,
            "trust_remote_code": plan.model.trust_remote_code,
        },
        # One log entry per train step: TRL averages over the step's optimizer updates.
        "logging_strategy": "steps",
        "logging_steps": training.optimizer_steps_per_batch,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **_of_ranks(training.sharding),
    }
    known = options_of(kind.__name__)
    return {option: value for option, value in decided.items() if option in known}


def _of_ranks(sharding: str) -> dict[str, Any]:
    """Options of DDP, or of FSDP2.

    With DDP's other setting, torch arranges gradients anew after the first update of a process, so
    three ranks or more would add them up in another order after a restart. With FSDP2, gradients
    are dealt out after each micro-batch, or a rank would hold all of them. transformers writes into
    these dictionaries."""
    if num_ranks() == 1:
        return {}
    if sharding != FULL:
        return {"ddp_find_unused_parameters": True}
    at_once = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    fsdp = {"version": 2, "reshard_after_forward": True}
    return {"fsdp": True, "fsdp_config": fsdp, "accelerator_config": at_once}


def _idle_options(chosen: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Return a sentence for each option of TRL's configuration that changes nothing here."""
    reasons = {name: idleness(name, kind) for name in chosen}
    return tuple(
        f"training.trl.{name} changes nothing: {reason}"
        for name, reason in reasons.items()
        if reason
    )


def _counted_in_batches(plan: TrainerPlan) -> tuple[str, ...]:
    """Return a sentence on what steps are, where a batch makes several optimizer updates."""
    updates = plan.training.optimizer_steps_per_batch
    if updates == 1:
        return ()
    return (
        f"one step of a run is one batch, which makes {updates} optimizer updates here: "
        "training.max_steps, checkpoints.save_steps and evaluation.eval_steps count batches. In "
        "TRL, max_steps, save_steps and eval_steps count updates, as warmup_steps and "
        "ref_model_sync_steps do here, too",
    )


def _idle_lora(plan: TrainerPlan) -> tuple[str, ...]:
    """Return a sentence for a shape of an adapter where there is none."""
    lora = plan.training.lora
    if plan.training.use_lora or lora == type(lora)():
        return ()
    return (
        "[training.lora] changes nothing: the whole model is trained unless "
        "training.use_lora = true",
    )


def _idle_sharding(plan: TrainerPlan) -> tuple[str, ...]:
    """Return a sentence for a model that is dealt out to one rank."""
    if plan.training.sharding != FULL or plan.training.ranks > 1:
        return ()
    return ("training.sharding = 'full' changes nothing: training.ranks = 1",)


def _lost_updates(plan: TrainerPlan) -> tuple[str, ...]:
    """Return a warning for weights in half precision, which most updates of Adam's size do not
    change.

    A weight changes if the update is half its spacing or more; the spacing of a weight between 2^e
    and 2^(e+1) is 2^(e-7) in bfloat16. Weights are taken to be normal with a standard deviation of
    0.02.
    """
    if plan.training.use_lora:
        return ()  # TRL trains the adapter in float32
    rate = plan.training.learning_rate
    dtype = _saved_type(plan) if plan.model.dtype == "auto" else plan.model.dtype
    if dtype not in FRACTION_BITS or not rate:
        return ()
    largest = 2.0 ** (math.floor(math.log2(rate)) + FRACTION_BITS[dtype] + 2)
    changed = math.erf(largest / (0.02 * math.sqrt(2)))
    if changed > WORTH_A_WARNING:
        return ()
    stands = "" if dtype == plan.model.dtype else f", here {dtype}"
    return (
        f"model.dtype = {plan.model.dtype!r}{stands}: at training.learning_rate = {rate:g}, an "
        f"update of Adam's changes only about {changed:.0%} of typical weights; the others are "
        "rounded back to what they were. Leave model.dtype out: weights are then float32, and "
        "a GPU still multiplies in bfloat16",
    )


def _saved_type(plan: TrainerPlan) -> str | None:
    """Return what `model.dtype = "auto"` stands for; None where that is not known here."""
    if plan.model.new is not None:
        return None
    try:
        return read_type(Path(tokenizer_folder(plan.model)) / "config.json")
    except ModelError:
        return None


def _check_packages(built: TrainingArguments) -> None:
    """Raise `ConfigError` for what needs a package that is not installed."""
    option, value = "optim", getattr(built.optim, "value", built.optim)
    try:
        Trainer.get_optimizer_cls_and_kwargs(built, torch.nn.Linear(1, 1))
        option, value = "use_liger_kernel", built.use_liger_kernel
        if value and not is_liger_kernel_available():
            raise ImportError("it needs the package liger-kernel: `pip install liger-kernel`")
    except (ImportError, ValueError) as error:
        # Some optimizers also look for modules of the model, which is not there yet.
        if isinstance(error, ImportError) or NOT_INSTALLED.search(str(error)):
            raise ConfigError(f"training.trl.{option} = {value!r}: {error}") from error
