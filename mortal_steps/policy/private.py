"""What MORTAL takes from the insides of TRL, transformers and accelerate: names with an underscore.

They may change in any release, so no other file uses one, except that trainers of ours override
some of TRL's and transformers' methods (`Stepped`, `SteppedRLOOTrainer`, `ScoredGroupsTrainer`).
Each name was seen in TRL 1.16.0, transformers 5.18.0 to 5.24.0 and accelerate 1.12.0 to 1.15.0,
the versions that pyproject.toml takes.
`tests/unit/policy/test_private.py` has the table of all of them, and compares it with what is
installed.

Libraries are imported where they are used: `ranks/world.py` runs before torch is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def set_sync_gradients(trainer: Any, is_last: bool) -> None:
    """Say whether a micro-step is the last of its update: accelerate's optimizer waits for it, and
    ranks add their gradients up. Otherwise each micro-step would be an update."""
    trainer.accelerator.gradient_state._set_sync_gradients(is_last)


def count_loss(trainer: Any, loss: Any) -> None:
    """Add a micro-step's loss to what is logged, as `Trainer._run_epoch` does. Of these two
    attributes, `_maybe_log_save_evaluate` makes the metric `loss`."""
    if trainer.args.logging_nan_inf_filter and not loss.isfinite():
        steps = 1 + trainer.state.global_step - trainer._globalstep_last_logged
        trainer._tr_loss += trainer._tr_loss / steps
    else:
        trainer._tr_loss += loss


def clip_gradients(trainer: Any) -> Any:
    """Clip the gradients by the Trainer's own rules (fp16, FSDP, DeepSpeed); return their norm, as
    it is logged."""
    model = trainer.model_wrapped
    norm = trainer._clip_grad_norm(model) if trainer.args.max_grad_norm > 0 else None
    return trainer._get_grad_norm(model, grad_norm=norm)


def learning_rate(trainer: Any) -> Any:
    """Return the learning rate of the update, as it is logged."""
    return trainer._get_learning_rate()


def log_update(trainer: Any, grad_norm: Any, learning_rate: Any) -> None:
    """Hand an update's metrics to the callbacks; nothing is evaluated or saved by it. The order of
    its parameters is what an upgrade would break without an error."""
    trainer._maybe_log_save_evaluate(
        *(trainer._tr_loss, grad_norm, trainer.model_wrapped, None, 0, None, 0.0),
        learning_rate=learning_rate,
    )


def num_items(trainer: Any, micro_batches: Collection[Any]) -> Any:
    """Return the number of items, such as tokens, that the loss of an update is a mean over."""
    return trainer._get_num_items_in_batch(list(micro_batches), trainer.args.device)


def tokens_seen(trainer: Any) -> int:
    """Return how many tokens a trainer that learns from rows has been given; it logs them as
    `num_tokens`. TRL's own checkpoints leave the count out, and begin again at 0."""
    return int(trainer._total_train_tokens)


def set_tokens_seen(trainer: Any, tokens: int) -> None:
    """Restore what `tokens_seen` returned."""
    trainer._total_train_tokens = tokens


def rows_for_the_model(trainer: Any) -> Any:
    """Return the training rows without the columns that the model does not take."""
    return trainer._remove_unused_columns(trainer.train_dataset, "training")


def evaluate(trainer: Any) -> dict[str, float]:
    """Evaluate as TRL's loop does where an evaluation is due; returns the metrics of all sets."""
    return dict(trainer._evaluate(None, None, skip_scheduler=True))


def save_scaler(trainer: Any, folder: Path) -> None:
    """Write the state of fp16's gradient scaler, as `Trainer.train` reads it when it resumes."""
    trainer._save_scaler(str(folder))


def use_one_device(arguments: Any) -> None:
    """Have transformers train on one GPU: it would deal a batch out to every GPU that it sees, of
    which TRL knows nothing."""
    arguments._n_gpu = min(arguments.n_gpu, 1)


def model_from(kind: Any, config: Any, dtype: str) -> Any:
    """Build a model of a class of transformers' own with random weights. The public `from_config`
    is one of the Auto classes alone."""
    return kind._from_config(config, dtype=dtype)


def keys_not_saved(model: Any) -> Collection[str]:
    """Return the tensors of the model that `save_pretrained` leaves out. With them, a published
    model would be refused, or take more room."""
    return model._keys_to_ignore_on_save or ()


def is_registered(model: Any) -> bool:
    """Return whether a class was registered (`register_for_auto_class`), so that `save_pretrained`
    writes its code, too."""
    return bool(getattr(model, "_auto_class", None))


def attention_of(model: Any) -> str | None:
    """Return the implementation of attention that a model computes with, which is not saved."""
    found: str | None = model.config._attn_implementation
    return found


def method_of(trainer: Any) -> str:
    """Return what TRL calls the trainer's method, such as GRPO. It stands in model cards."""
    return str(trainer._name)


def log_metric(trainer: Any, name: str, value: float) -> None:
    """Add a value to those whose mean TRL logs at the end of the step."""
    trainer._metrics["train"][name].append(value)


def micro_step(trainer: Any) -> int:
    """Return how many micro-steps TRL's trainer has taken: it knows by it which part of a batch is
    next."""
    return int(trainer._step)


def trained_logprobs(trainer: Any, model: Any, ids: Any, mask: Any, count: int) -> Any:
    """Return the log-probabilities of the last `count` tokens of each row, as TRL's loss has
    them of the trained model, or of the teacher. Distillation makes logits of hidden states."""
    if hasattr(trainer, "_get_per_token_logps_and_entropies"):
        return trainer._get_per_token_logps_and_entropies(model, ids, mask, count)[0]
    plain = trainer.accelerator.unwrap_model(model)

    def logprobs() -> Any:
        hidden = trainer._get_last_hidden_state(plain, ids, mask, count)
        logits = plain.get_output_embeddings()(hidden).float()
        return logits.log_softmax(-1).gather(-1, ids[:, -count:, None]).squeeze(-1)

    # As in its loss: a model that is dealt out to ranks is gathered by the forward of its wrapper.
    return trainer._forward_redirection(model, plain, logprobs)


def correct_importance(trainer: Any) -> None:
    """Have GRPOTrainer correct for the difference between sampler and trainer. TRL ties that to its
    own vLLM engine: switched on after the constructor, there is the correction without the
    engine, for which something stands that has nothing to sync."""
    trainer.use_vllm = True
    trainer.vllm_generation = _SampledElsewhere()
    trainer._last_loaded_step = -1


class _SampledElsewhere:
    def sync_weights(self) -> None:
        pass


def entropy_control(trainer: Any) -> dict[str, Any]:
    """Return what GRPOTrainer adapts by itself, as it writes it beside its checkpoints. Without it,
    a resumed run would begin anew to look for the coefficient of the entropy bonus."""
    return {
        "entropy_coef": trainer.entropy_coef,
        "last_world_entropy": trainer._last_world_entropy,
    }


def set_entropy_control(trainer: Any, control: Mapping[str, Any]) -> None:
    """Restore what `entropy_control` returned."""
    trainer.entropy_coef = control["entropy_coef"]
    trainer._last_world_entropy = control["last_world_entropy"]


def template_files() -> list[Path]:
    """Return the files of the chat templates that TRL carries. Messages name them, nothing else."""
    from trl import chat_template_utils

    return sorted(chat_template_utils._CHAT_TEMPLATES_DIR.glob("*.jinja"))


def forward_without_autocast(model: Any) -> Any:
    """Return the model's forward as it was before accelerate put autocast around it. Under another
    name it would not be found, and scores would be computed in bfloat16."""
    return getattr(model, "_original_forward", model)


def let_cpus_shard() -> None:
    """Have accelerate shard a model on CPUs, too. It does so on accelerators alone, and elsewhere
    trains by DDP without a word."""
    from accelerate.state import AcceleratorState, PartialState  # type: ignore[import-untyped]
    from accelerate.utils import DistributedType  # type: ignore[import-untyped]

    begin = AcceleratorState.__init__

    def begin_sharded(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        begin(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is None or self.distributed_type != DistributedType.MULTI_CPU:
            return
        self.distributed_type = DistributedType.FSDP
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)
        self.fsdp_plugin = fsdp_plugin
        PartialState._shared_state["distributed_type"] = self.distributed_type

    AcceleratorState.__init__ = begin_sharded
