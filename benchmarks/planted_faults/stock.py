"""Stock `GRPOTrainer.train()` with a sampler beside it, as TRL has vLLM beside it.

TRL calls `sync_weights` and `generate` of its `vllm_generation`. Here a second copy of the model
stands there: no GPU is needed, and a fault can be planted in what it is given.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

TENSOR = "layers.1.mlp.down_proj"
"""Part of the name of the tensor that is not delivered."""
PROBE = [5, 6, 7, 30, 8, 9, 40, 12]
METRIC = "sampling/sampling_logp_difference/max"
FIRST_FAULT = 2
"""Syncs that go well before."""


class Sampler:
    """Stands where TRL keeps vLLM."""

    def __init__(self, trainer: GRPOTrainer, model: Any, fault: str, max_tokens: int) -> None:
        self._trainer, self._fault, self._max_tokens = trainer, fault, max_tokens
        self._model = model.eval()
        self.num_syncs = 0

    @torch.no_grad()
    def sync_weights(self) -> None:
        self.num_syncs += 1
        held = self._model.state_dict()
        struck = self.num_syncs > FIRST_FAULT
        for name, tensor in self._trainer.model.state_dict().items():
            if struck and (self._fault == "nothing delivered" or self._is_lost(name)):
                continue
            held[name].copy_(tensor)

    def _is_lost(self, name: str) -> bool:
        return self._fault == "one tensor not delivered" and TENSOR in name

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], num_generations: int, **kwargs: Any
    ) -> tuple[Any, list[list[int]], list[list[list[float]]], None]:
        completions, logprobs = [], []
        for prompt in prompts:  # TRL has repeated them
            ids = list(prompt)
            sampled: list[list[float]] = []
            for _ in range(self._max_tokens):
                row = self._model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
                token = int(torch.multinomial(row.exp(), 1))
                ids.append(token)
                sampled.append([float(row[token])])
            completions.append(ids[len(prompt) :])
            logprobs.append(sampled)
        return prompts, completions, logprobs, None

    def off_by(self) -> float:
        """Largest difference of the probe's log-probabilities, in nats."""
        both = [_score(model) for model in (self._model, self._trainer.model)]
        return float((both[0] - both[1]).abs().max())


@torch.no_grad()
def _score(model: Any) -> torch.Tensor:
    ids = torch.tensor([PROBE])
    was_training = model.training
    logits = model.eval()(ids).logits[0, :-1].float().log_softmax(-1)
    model.train(was_training)
    return logits.gather(1, ids[0, 1:, None]).squeeze(1)


def evenness(completion_ids: Sequence[Sequence[int]], **kwargs: Any) -> list[float]:
    """Share of even tokens."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def train(
    model: str, folder: Path, *, lora: bool, fault: str, steps: int, learning_rate: float
) -> Mapping[str, Any]:
    """Train so many steps with the fault in every sync after the second; what TRL said of it."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    options = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        learning_rate=learning_rate,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trainer = GRPOTrainer(
            model=model,
            args=options,
            reward_funcs=[evenness],
            train_dataset=Dataset.from_dict({"prompt": [f"{row}abc" for row in range(8)]}),
            processing_class=AutoTokenizer.from_pretrained(model),
            peft_config=_adapter() if lora else None,
        )
        trainer.remove_callback(PrinterCallback)
        copy = AutoModelForCausalLM.from_pretrained(model)
        copy = get_peft_model(copy, _adapter()) if lora else copy
        sampler = Sampler(trainer, copy, fault, max_tokens=8)
        trainer.use_vllm, trainer.vllm_generation = True, sampler
        trainer._last_loaded_step = -1
        already = len(warned)
        with _heard() as logged:
            trainer.train()
    warnings_of_it = [str(warning.message) for warning in warned[already:]]
    differences = [row[METRIC] for row in trainer.state.log_history if METRIC in row]
    return {
        "steps": trainer.state.global_step,
        "off_by": sampler.off_by(),
        "metric": [differences[FIRST_FAULT - 1], differences[-1]],
        "said": [text for text in (*warnings_of_it, *logged) if _is_about_it(text)],
    }


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Yield what is logged as a warning or worse."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in (None, "trl", "transformers", "accelerate")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield said
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _adapter() -> LoraConfig:
    return LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")


def _is_about_it(text: str) -> bool:
    return any(word in text.lower() for word in ("weight", "stale", "sync", "logprob", "mismatch"))
