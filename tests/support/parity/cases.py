"""Configurations drawn at random, each a function of the seed and its number alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.parity.architectures import ARCHITECTURES, MIXTURES, PLAIN
from tests.support.policy.kept import Kept
from tests.support.policy.rollouts import make_config

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw_torch": {},
    "adamw_torch-amsgrad": {"optim": "adamw_torch", "optim_args": "amsgrad=True"},
    "adamw_torch_fused": {},
    "adafactor": {},
    "sgd": {},
    "sgd-momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "adagrad": {},
    "rmsprop": {},
    "rmsprop-centered": {"optim": "rmsprop", "optim_args": "centered=True,momentum=0.5"},
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "linear": {},
    "cosine": {},
    "cosine_with_restarts": {"lr_scheduler_kwargs": {"num_cycles": 2}},
    "polynomial": {"lr_scheduler_kwargs": {"power": 2.0}},
    "constant": {},
    "constant_with_warmup": {},
    "inverse_sqrt": {},
    "cosine_with_min_lr": {"lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
    "cosine_warmup_with_min_lr": {"lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
    "warmup_stable_decay": {"lr_scheduler_kwargs": {"num_decay_steps": 2}},
}
LOSSES = ["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
CORRECTIONS = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
OF_GRPO = {
    "loss_type",
    "scale_rewards",
    "importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "entropy_coef",
    "use_adaptive_entropy",
    "entropy_target",
    "top_entropy_quantile",
    "multi_objective_aggregation",
    "delta",
    "importance_sampling_level",
}
"""What is drawn and RLOO has not."""
PEFT_OF_MIXTURES: list[dict[str, Any]] = [{}, {"use_rslora": True}, {"bias": "all"}]
PEFT = [*PEFT_OF_MIXTURES, {"use_dora": True}, {"init_lora_weights": "pissa"}]
"""Options of its LoraConfig."""
OF_REWARDS = {
    *("num_iterations", "beta", "epsilon_high", "mask_truncated_completions"),
    *("sync_ref_model", "ref_model_sync_steps"),
}
"""What else is drawn and distillation has not."""
DROPPING = {"llama", "mistral", "qwen3", "gemma2", "gemma3_text", "olmo2", "granite", "cohere"}
"""Models that know `attention_dropout`."""
WIDENED = {"llama", "mistral", "qwen3", "olmo2", "stablelm", "smollm3"}
"""Teachers that are drawn wider and deeper than the student."""
KILLED_IN = ["update", "update", "save_state", "export_weights"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A run to be made three times."""

    number: int
    architecture: str
    optimizer: str
    schedule: str
    model: Mapping[str, Any]
    rollout: Mapping[str, Any]
    training: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    num_steps: int
    save_steps: int
    """Train steps from one checkpoint to the next."""
    kills: tuple[tuple[str, int], ...]
    """For each process but the last: in which call it is killed, and in the how manieth of these
    since it began."""
    teacher: Mapping[str, Any] | None = None
    """Shape of the teacher that is learned from: its `architecture`, and sizes of it."""
    kept: Kept | None = None
    """Where more is sampled than trained on; stock TRL is made for what is kept."""
    forks_ranks: bool = False
    """Whether the actor forks its other ranks, which saves their imports."""


def draw(seed: int, number: int, architecture: str | None = None, algorithm: str = "grpo") -> Case:
    """Case `number` of a seed; of the architecture given, where one is."""
    source = random.Random(f"{seed}-{number}")
    drawn = architecture or source.choice(list(ARCHITECTURES))
    optimizer = source.choice(list(OPTIMIZERS))
    schedule = source.choice(list(SCHEDULES))
    rollout: dict[str, Any] = {"temperature": source.choice([1.0, 1.0, 0.7, 1.3])}
    num_steps = source.randint(3, 5)
    kills = source.randint(1, 3)
    own: dict[str, Any] = {"type": algorithm}
    if algorithm == "rloo":
        own |= _rloo_settings(random.Random(f"{seed}-{number}-rloo"))
    case = Case(
        number=number,
        architecture=drawn,
        optimizer=optimizer,
        schedule=schedule,
        model={"dtype": source.choice(["float32", "float32", "float32", "bfloat16"])},
        rollout=rollout,
        training=_for(
            algorithm,
            _with_peft(
                random.Random(f"{seed}-{number}-peft"),
                drawn,
                _training(source, drawn, optimizer, schedule),
            ),
        ),
        algorithm=own,
        num_steps=num_steps,
        save_steps=source.randint(1, 3),
        kills=tuple((source.choice(KILLED_IN), source.randint(1, 4)) for _ in range(kills)),
    )
    if algorithm == "distillation":
        return _with_teacher(case, random.Random(f"{seed}-{number}-teacher"))
    if algorithm == "opd":
        taught = _with_teacher(case, random.Random(f"{seed}-{number}-teacher"))
        return _served(taught, random.Random(f"{seed}-{number}-served"))
    return case


def draw_on_ranks(seed: int, number: int, ranks: int, algorithm: str = "grpo") -> Case:
    """Case `number` of a seed for so many ranks: every second one is dealt out to them."""
    case = draw(seed, number, algorithm=algorithm)
    training = {**case.training, "ranks": ranks, "batch_size": 2 * ranks, "num_generations": 4}
    if number % 2:
        training |= {"sharding": "full"}
        if "lora" in training:
            training["lora"] = {**training["lora"], "peft": {}, "publish": "adapter"}
    return dataclasses.replace(case, training=training)


def draw_kept(seed: int, number: int, ranks: int = 1, algorithm: str = "grpo") -> Case:
    """Case `number` of a seed, in which a selection keeps other groups than all that it sampled,
    and mostly fewer than the run's batch has."""
    if ranks == 1:
        case = draw(seed, number, algorithm=algorithm)
    else:
        case = draw_on_ranks(seed, number, ranks, algorithm)
    source = random.Random(f"{seed}-{number}-kept")
    training = {**case.training, "batch_size": 4, "num_generations": source.choice([3, 4])}
    if training.get("gradient_accumulation_steps", 1) * ranks > 1:
        training["num_generations"] = 4
    divides = make_config(**training).training.divides
    num_kept = source.choice([n for n in (1, 2, 3, 3, 4) if divides(n)])
    kept = Kept(
        num_sampled=num_kept + source.randint(1, 4),
        num_kept=num_kept,
        first=source.choice([None, 1, 2]),
    )
    return dataclasses.replace(case, training=training, kept=kept)


def _rloo_settings(source: random.Random) -> dict[str, Any]:
    return {
        "normalize_advantages": source.random() < 0.5,
        "reward_clip_range": source.choice([None, None, [0.2, 0.7]]),
    }


def _with_teacher(case: Case, source: random.Random) -> Case:
    """Return the case as one that learns from a teacher, which may be of another family."""
    training = {name: value for name, value in case.training.items() if name not in OF_REWARDS}
    options = {name: value for name, value in training["trl"].items() if name not in OF_REWARDS}
    if source.random() < 0.3:
        options["bf16"] = True
    if source.random() < 0.3 and case.architecture in DROPPING:
        options["model_init_kwargs"] = {"attention_dropout": 0.1}
    if source.random() < 0.2:
        options["disable_dropout"] = True
    training |= {"num_generations": source.choice([1, 1, 2]), "batch_size": 4, "trl": options}
    same = case.architecture if source.random() < 0.5 else source.choice([*PLAIN])
    # Of sizes that a family's own names say, the heads stay as they are.
    wide = {"hidden_size": 64, "num_hidden_layers": 3} if same in WIDENED else {}
    beta = source.choice([0.0, 0.3, 1.0, 1.0])
    dtype = source.choice(["float32", "float32", "bfloat16"])
    return dataclasses.replace(
        case,
        training=training,
        algorithm={**case.algorithm, "beta": beta, "teacher": {"dtype": dtype}},
        teacher={"architecture": same, **wide},
    )


def _served(case: Case, source: random.Random) -> Case:
    """Return the case as one whose teachers are a role of their own: one of them, or two, the
    second of which computes in another type."""
    beta = case.algorithm["beta"]
    several = source.choice([1, 4, 16]) if beta == 0 else 1
    tail = source.random() < 0.7 or (several == 1 and beta in (0, 1))
    teachers = {"main": dict(case.algorithm["teacher"])}
    own = {"type": "opd", "beta": beta, "loss_top_k": several, "loss_add_tail": tail}
    if source.random() < 0.3:
        teachers["other"] = {"dtype": "bfloat16", "batch_size": 4}
        own["teacher_column"] = "taught_by"
    return dataclasses.replace(case, algorithm={**own, "teachers": teachers})


def _for(algorithm: str, training: dict[str, Any]) -> dict[str, Any]:
    """Return what was drawn, without what the algorithm has not."""
    if algorithm == "grpo":
        return training
    options = {name: training["trl"][name] for name in training["trl"] if name not in OF_GRPO}
    return {name: training[name] for name in training if name not in OF_GRPO} | {"trl": options}


def _training(
    source: random.Random, architecture: str, optimizer: str, schedule: str
) -> dict[str, Any]:
    loss = source.choice(LOSSES)
    training: dict[str, Any] = {
        "loss_type": loss,
        "batch_size": source.choice([2, 4]),
        "num_generations": source.choice([2, 4]),
        "learning_rate": source.choice([1e-4, 1e-3, 1e-2]),
        "gradient_accumulation_steps": source.choice([1, 1, 2, 4]),
        "num_iterations": source.choice([1, 1, 2]),
        "beta": source.choice([0.0, 0.0, 0.05]),
        "epsilon_high": 5.0 if loss == "cispo" else source.choice([None, 0.3]),
        "scale_rewards": source.choice(["group", "group", "batch", "none"]),
        "gradient_checkpointing": source.random() < 0.25,
        "trl": _trl_options(source, loss, optimizer, schedule),
    }
    if source.random() < 0.3:
        dropout = source.choice([0.0, 0.2])
        if architecture in MIXTURES:  # peft adapts experts without dropout alone
            dropout = 0.0
        training |= {"use_lora": True, "lora": {"r": source.choice([2, 8]), "dropout": dropout}}
    if source.random() < 0.4:
        modes = CORRECTIONS[:2] if loss == "vespo" else CORRECTIONS
        training["importance_sampling_correction"] = True
        training["trl"]["vllm_importance_sampling_mode"] = source.choice(modes)
    if training["beta"] and not training.get("use_lora") and source.random() < 0.5:
        training["trl"] |= {"sync_ref_model": True, "ref_model_sync_steps": 2}
    return training


def _with_peft(
    source: random.Random, architecture: str, training: dict[str, Any]
) -> dict[str, Any]:
    """Return the same with options of PEFT's, where there is an adapter."""
    if "lora" not in training:
        return training
    known = PEFT_OF_MIXTURES if architecture in MIXTURES else PEFT
    return training | {"lora": training["lora"] | {"peft": source.choice(known)}}


def _trl_options(source: random.Random, loss: str, optimizer: str, schedule: str) -> dict[str, Any]:
    options: dict[str, Any] = {"optim": optimizer} | OPTIMIZERS[optimizer]
    options |= {"lr_scheduler_type": schedule} | SCHEDULES[schedule]
    now_and_then: list[tuple[float, Callable[[], dict[str, Any]]]] = [
        (0.4, lambda: {"warmup_steps": source.randint(1, 2)}),
        (0.3, lambda: {"weight_decay": 0.1}),
        (0.3, lambda: {"max_grad_norm": source.choice([0.0, 0.1])}),
        (0.2, lambda: {"entropy_coef": 0.02}),
        (0.2, lambda: {"use_adaptive_entropy": True, "entropy_target": 4.3}),
        (0.2, lambda: {"top_entropy_quantile": 0.5}),
        (0.2, lambda: {"mask_truncated_completions": True}),
        (0.2, lambda: {"multi_objective_aggregation": "normalize_then_sum"}),
        (0.2, lambda: {"delta": 1.5} if loss in ("grpo", "bnpo", "dr_grpo", "dapo") else {}),
        (0.2, lambda: {"importance_sampling_level": "sequence"} if loss == "grpo" else {}),
    ]
    for share, made in now_and_then:
        if source.random() < share:
            options |= made()
    return options
