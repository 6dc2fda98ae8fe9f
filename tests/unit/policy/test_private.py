"""The names of other libraries' insides that MORTAL uses, compared with what is installed.

A test that fails here after an upgrade says what changed and which files of ours use it. If it
still means the same, the new form goes into the table, beside the old one while the range of
versions in pyproject.toml has both.
"""

import ast
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

LIBRARIES = ("accelerate", "peft", "transformers", "trl")
PRODUCT = ("mortal", "mortal_steps", "flows", "tasks", "deployments")
PRIVATE = ROOT / "mortal_steps/policy/private.py"

GRPO = "trl.trainer.grpo_trainer:GRPOTrainer"
RLOO = "trl.trainer.rloo_trainer:RLOOTrainer"
DISTILLATION = "trl.trainer.distillation_trainer:DistillationTrainer"
SERVED = "trl.experimental.server_distillation:ServerDistillationTrainer"
SFT = "trl.trainer.sft_trainer:SFTTrainer"
DPO = "trl.trainer.dpo_trainer:DPOTrainer"
KTO = "trl.trainer.kto_trainer:KTOTrainer"
TEMPLATES = "trl.chat_template_utils"
TRAINER = "transformers.trainer:Trainer"
RENDERING = "transformers.utils.chat_template_utils"

CALLED: list[tuple[str, str, tuple[str, ...]]] = [
    ("accelerate.state:GradientState", "_set_sync_gradients", ("self, sync_gradients",)),
    ("peft.utils.integrations", "dequantize_module_weight", ("module",)),
    (
        "peft.utils.other:AuxiliaryTrainingWrapper",
        "unload_and_optionally_merge_module",
        ("self, merge, safe_merge, adapter_names",),
    ),
    (TRAINER, "_clip_grad_norm", ("self, model",)),
    (TRAINER, "_get_grad_norm", ("self, model, grad_norm",)),
    (TRAINER, "_get_learning_rate", ("self",)),
    (TRAINER, "_load_from_checkpoint", ("self, resume_from_checkpoint, model",)),
    (TRAINER, "_load_optimizer_and_scheduler", ("self, checkpoint",)),
    (
        TRAINER,
        "_maybe_log_save_evaluate",
        (
            "self, tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time, "
            "learning_rate",
        ),
    ),
    (TRAINER, "_evaluate", ("self, trial, ignore_keys_for_eval, skip_scheduler",)),
    (TRAINER, "_get_num_items_in_batch", ("self, batch_samples, device",)),
    (TRAINER, "_remove_unused_columns", ("self, dataset, description",)),
    (TRAINER, "_save_scaler", ("self, output_dir",)),
    (TRAINER, "training_step", ("self, model, inputs, num_items_in_batch",)),
    ("transformers.trainer_callback:TrainerState", "compute_steps", ("self, args, max_steps",)),
    ("transformers.modeling_utils:PreTrainedModel", "_from_config", ("config, kwargs",)),
    (
        "transformers.modeling_utils",
        "remove_tied_weights_from_state_dict",
        ("state_dict, model",),
    ),
    ("transformers.core_model_loading", "revert_weight_conversion", ("model, state_dict",)),
    (RENDERING, "get_json_schema", ("func",)),
    (RENDERING, "is_torch_available", ("",)),
    (TEMPLATES, "add_response_schema", ("processing_class",)),
    (TEMPLATES, "get_training_chat_template", ("processing_class, tokenizer",)),
    (TEMPLATES, "is_chat_template_prefix_preserving", ("processing_class",)),
    (TEMPLATES, "supports_tool_calling", ("processing_class",)),
    (GRPO, "_compute_loss", ("self, model, inputs",)),
    (
        GRPO,
        "_get_per_token_logps_and_entropies",
        ("self, model, input_ids, attention_mask, logits_to_keep, ...",),
    ),
    (GRPO, "_prepare_inputs", ("self, generation_batch",)),
    (
        DISTILLATION,
        "_generate_single_turn",
        ("self, prompt_ids, images, multimodal_fields, has_tool_images",),
    ),
    (
        DISTILLATION,
        "_get_last_hidden_state",
        ("self, unwrapped_model, input_ids, attention_mask, logits_to_keep, ...",),
    ),
    (DISTILLATION, "_tokenize_prompts", ("self, prompts",)),
    (DISTILLATION, "_generate_and_score_completions", ("self, inputs",)),
    (
        SERVED,
        "_get_teacher_token_logprobs_from_server",
        ("self, inputs, aligned_prompt_length",),
    ),
    (
        SERVED,
        "__init__",
        (
            "self, model, args, train_dataset, eval_dataset, processing_class, callbacks, "
            "optimizers, quantization_config, peft_config",
        ),
    ),
    (RLOO, "_calculate_rewards", ("self, inputs, prompts, completions, completion_ids_list",)),
    (RLOO, "_generate_single_turn", ("self, prompt_ids, images, multimodal_fields",)),
    (
        RLOO,
        "_get_per_token_logps_and_entropies",
        ("self, model, input_ids, attention_mask, logits_to_keep, ...",),
    ),
    (RLOO, "_tokenize_prompts", ("self, prompts",)),
    (
        SFT,
        "_prepare_dataset",
        ("self, dataset, processing_class, args, packing, formatting_func, dataset_name",),
    ),
    (DPO, "_precompute_ref_logps", ("self, dataset, name, batch_size",)),
    (KTO, "_precompute_ref_logps", ("self, dataset, name, batch_size",)),
]
"""Module and class, the function, and what its parameters may be called."""

KEPT = [
    ("accelerate.accelerator:Accelerator", "_original_forward"),
    ("accelerate.state:AcceleratorState", "_mixed_precision"),
    ("accelerate.state:PartialState", "_shared_state"),
    ("transformers.configuration_utils:PreTrainedConfig", "_attn_implementation"),
    ("transformers.modeling_utils:PreTrainedModel", "_auto_class"),
    ("transformers.modeling_utils:PreTrainedModel", "_keys_to_ignore_on_save"),
    (TRAINER, "_globalstep_last_logged"),
    (TRAINER, "_tr_loss"),
    (TRAINER, "callback_handler"),
    (TRAINER, "current_gradient_accumulation_steps"),
    (TRAINER, "model_wrapped"),
    ("transformers.training_args:TrainingArguments", "_n_gpu"),
    (RENDERING, "datetime"),
    (TEMPLATES, "_CHAT_TEMPLATES_DIR"),
    (GRPO, "_last_loaded_step"),
    (GRPO, "_last_world_entropy"),
    (GRPO, "_metrics"),
    (GRPO, "_name"),
    (GRPO, "_step"),
    (GRPO, "entropy_coef"),
    (GRPO, "eos_token_ids"),
    (GRPO, "use_adaptive_entropy"),
    (GRPO, "use_vllm"),
    (GRPO, "vllm_generation"),
    (RLOO, "_metrics"),
    (DISTILLATION, "_forward_redirection"),
    (DISTILLATION, "_name"),
    (DISTILLATION, "eos_token_ids"),
    (DISTILLATION, "teacher_model"),
    (SERVED, "loss_add_tail"),
    (SERVED, "loss_top_k"),
    (SERVED, "reverse_kl_top_1_mode"),
    (SERVED, "teacher_client"),
    (SFT, "_total_train_tokens"),
    (RLOO, "_name"),
    (RLOO, "eos_token_ids"),
]
"""Module and class, and what they keep under this name."""


@pytest.mark.parametrize(("where", "name", "known"), CALLED, ids=lambda each: str(each))
def test_a_function_takes_what_it_is_given(where, name, known):
    function = getattr(home_of(where), name, None)
    assert function is not None, changed(where, name, "is gone")
    parameters = ", ".join(inspect.signature(function).parameters)
    fits = any(
        parameters == form or (form.endswith("...") and parameters.startswith(form[:-3]))
        for form in known
    )
    assert fits, changed(where, name, f"takes ({parameters}), not ({') or ('.join(known)})")


@pytest.mark.parametrize(("where", "name"), KEPT)
def test_what_is_kept_has_its_name(where, name):
    home, assigned = home_of(where), re.compile(rf"\w\.{name}\b[^=\n]*=(?!=)")
    classes = home.__mro__ if isinstance(home, type) else ()
    sources = {inspect.getsource(sys.modules[each.__module__]) for each in classes[:-1]}
    assert hasattr(home, name) or any(map(assigned.search, sources)), changed(
        where, name, "is kept no more"
    )


def test_the_table_is_complete():
    known = {name for _, name, _ in CALLED} | {name for _, name in KEPT}
    tree = ast.parse(PRIVATE.read_text())
    strings = {each.args[1].value for each in ast.walk(tree) if is_call_of(each, "getattr")}
    assert {*names_in(tree), *strings} <= known


def test_no_other_file_uses_such_a_name():
    """Attributes with an underscore that the file itself does not define."""
    others = {
        str(path.relative_to(ROOT)): found
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if path != PRIVATE and (found := sorted(foreign_names(ast.parse(path.read_text()))))
    }
    assert not others, f"such names belong into {PRIVATE.relative_to(ROOT)}"


def test_a_change_is_named():
    told = changed(GRPO, "_metrics", "is gone")
    assert told.startswith(f"trl {importlib.metadata.version('trl')}: GRPOTrainer._metrics is gone")
    assert str(PRIVATE.relative_to(ROOT)) in told


def home_of(where: str) -> Any:
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def changed(where: str, name: str, how: str) -> str:
    library = where.partition(".")[0]
    word = re.compile(rf"\b{name}\b")
    used = sorted(
        str(path.relative_to(ROOT))
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if word.search(path.read_text())
    )
    version, home = importlib.metadata.version(library), re.split("[.:]", where)[-1]
    return f"{library} {version}: {home}.{name} {how}. It is used in {', '.join(used)}"


def names_in(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and re.fullmatch(r"_[A-Za-z]\w*", each.attr):
            yield each.attr


def foreign_names(tree: ast.AST) -> set[str]:
    nodes = list(ast.walk(tree))
    imports = {each.module for each in nodes if isinstance(each, ast.ImportFrom) and each.module}
    imports |= {name.name for each in nodes if isinstance(each, ast.Import) for name in each.names}
    if not {name.partition(".")[0] for name in imports} & set(LIBRARIES):
        return set()
    own = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
    own |= {ast.unparse(each.target) for each in nodes if isinstance(each, ast.AnnAssign)}
    stored = (n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    own |= {each.attr for each in stored if ast.unparse(each.value) in ("self", "cls")}
    return set(names_in(tree)) - own


def is_call_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
