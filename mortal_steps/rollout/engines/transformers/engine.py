"""The `transformers` engine: `model.generate`, with every token drawn from its completion's stream.

`generate` runs greedily; a logits processor draws the token itself and leaves generate no choice:

    scores_BV --temperature--> logprobs_BV --min-p, top-k, top-p; one uniform per row--> token_B

The uniforms of a completion are a function of its seed and the position alone, so a completion is
the same in any process. On CPU that holds to the bit for the same batch of prompts; in another
batch left padding and kernels may move logprobs by some 1e-6.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.core_model_loading import revert_weight_conversion

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import EngineError, ModelError
from mortal_steps.models.model_class import check_known, load_model
from mortal_steps.rollout.engines.base import Engine, SampledTokens, context_length
from mortal_steps.rollout.engines.model_files import (
    is_adapter,
    read_adapter_config,
    tensor_shapes,
    tensors_in,
)
from mortal_steps.rollout.engines.transformers.adapter import AdaptedModel
from mortal_steps.rollout.engines.transformers.padding import check_padding
from mortal_steps.rollout.engines.transformers.seeded_draw import SeededDraw
from mortal_steps.rollout.engines.transformers.shared_prefill import check_sharing, shared_prefill
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.types import SamplingParams

LAYER = re.compile(r"(.*?\.\d+\.)?")


class TransformersEngine(Engine):
    """Samples with transformers on the GPU if there is one, else on the CPU.

    Weights are replaced in place, whatever way of syncing them is chosen: there is no server to
    restart and nothing derived from them. So are an adapter's, whose base stays.
    `rollout.engine_options` are passed on to `from_pretrained`. Raises `ModelError` where the model
    cannot be loaded.
    """

    def __init__(
        self,
        *,
        model_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        tokenizer: Callable[[], PreTrainedTokenizerBase],
    ) -> None:
        self._tokenizer = tokenizer()
        self._options: dict[str, Any] = {
            "dtype": model.dtype,
            "trust_remote_code": model.trust_remote_code,
            **rollout.engine_options,
        }
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._base_path = model_path
        self._is_base = True
        self._leaves_out_padding = False
        self._shares_prefill = rollout.share_prefill
        self._is_tried = False
        self._adapted: AdaptedModel | None = None
        try:
            self._model = self._read_model(model_path)
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"cannot load the model {model_path}: {error}") from error
        self._end_ids = _end_ids(self._model.generation_config, self._tokenizer)
        pad_id = self._tokenizer.pad_token_id
        self._pad_id = pad_id if pad_id is not None else 0
        # Parameters once each (tied ones are one), under the names they have in a weights file.
        self._names = set(dict(self._model.named_parameters()))
        self._stop_criteria = functools.lru_cache(maxsize=4)(self._build_stop_criteria)
        self.dtype = str(self._model.dtype).removeprefix("torch.")
        self.max_model_len = context_length(self._model.config, model.max_model_len)

    def load(self, folder: Path) -> None:
        """Replace the weights; raises `EngineError` if the folder does not fit the model."""
        load = self._load_adapter if is_adapter(folder) else self._load_model
        try:
            load(folder)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise EngineError(f"cannot load the weights in {folder}: {error}") from error

    def _load_adapter(self, folder: Path) -> None:
        held = self._adapted
        if held is None or held.config != read_adapter_config(folder):
            if held is not None or not self._is_base:
                self._model = self._read_model(self._base_path)
            self._is_base = True
            held = self._adapted = AdaptedModel(self._model, folder)
        held.load(folder)

    def _load_model(self, folder: Path) -> None:
        self._is_base = False
        if self._adapted is not None:
            self._model, self._adapted = self._read_model(str(folder)), None
            return
        own = self._own()
        shapes = tensor_shapes(folder)
        if shapes.keys() != own.keys():
            # Names that transformers converts while reading: the slow way.
            self._model = self._read_model(str(folder))
            return
        for name, tensor in own.items():
            if shapes[name] != tuple(tensor.shape):
                raise ValueError(
                    f"{name} is {shapes[name]} there, {tuple(tensor.shape)} in the model"
                )
        with torch.no_grad():
            for name, tensor in tensors_in(folder):
                own[name].copy_(tensor)

    def compare(self, published: PublishedTensors) -> Mapping[str, bool]:
        """Compare the adapter's tensors, or the model's by the names that they have in files."""
        if is_adapter(published.folder):
            return self._adapted.compare(published) if self._adapted else {"all of it": False}
        own = self._own()
        if own.keys() >= published.shapes.keys():
            return published.compared(own.items())
        return published.compared(_by_published_names(self._model, own))

    def _own(self) -> dict[str, torch.Tensor]:
        held = dict(self._model.named_parameters())
        return {name: held[name] for name in self._names if name in held}

    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        """One completion per entry, in one batch, padded on the left."""
        check_known([max(prompt_ids) for prompt_ids in prompts_ids], self._model)
        ids_BP, mask_BP = self._pad(prompts_ids)
        draw = SeededDraw(seeds, params)
        watches = []
        if params.stop:
            criteria = self._stop_criteria(params.stop)
            watches.append(_StopStringWatch(criteria, prompt_length=ids_BP.shape[1]))
        generation = GenerationConfig(
            max_new_tokens=params.max_tokens,
            do_sample=False,
            eos_token_id=self._end_ids or None,
            pad_token_id=self._pad_id,
        )
        # A model's own generation settings (Qwen's repetition_penalty, top_k) would otherwise fill
        # what `generation` leaves open, and the tokens would come from another distribution.
        self._model.generation_config = generation
        if not self._leaves_out_padding and not mask_BP.all():
            check_padding(self._model, ids_BP, mask_BP, prompts_ids)
            self._leaves_out_padding = True
        with torch.inference_mode(), self._sharing(prompts_ids):
            sequences = self._model.generate(
                ids_BP,
                attention_mask=mask_BP,
                generation_config=generation,
                logits_processor=LogitsProcessorList([draw]),
                stopping_criteria=StoppingCriteriaList(watches),
            )
        # On CUDA generate looks up only now and then whether every row has ended: what was drawn
        # in vain meanwhile is not part of `sequences`.
        num_steps = sequences.shape[1] - ids_BP.shape[1]
        tokens_BT = torch.stack(draw.tokens[:num_steps], dim=1)
        ended_BT = torch.isin(tokens_BT, torch.tensor(self._end_ids, device=self._device))
        for watch in watches:
            ended_BT |= torch.stack(watch.completed[:num_steps], dim=1)
        return _cut(tokens_BT, torch.stack(draw.logprobs[:num_steps], dim=1), ended_BT)

    def _sharing(
        self, prompts_ids: Sequence[Sequence[int]]
    ) -> contextlib.AbstractContextManager[None]:
        """Return the context in which a batch is sampled."""
        prompts = sorted({tuple(prompt_ids) for prompt_ids in prompts_ids}, key=len)
        if not self._shares_prefill or len(prompts) == len(prompts_ids):
            return contextlib.nullcontext()
        if not self._is_tried:
            check_sharing(self._model, [prompts[0], prompts[-1]], self._pad_id)
            self._is_tried = True
        return shared_prefill(self._model, prompts_ids)

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Logprobs at temperature 1 of tokens 1.. given all before."""
        ids_1T = torch.tensor([list(token_ids)], device=self._device)
        with torch.inference_mode():
            logits_TV = self._model(ids_1T).logits[0, :-1].float()
        logprobs_TV = logits_TV.log_softmax(dim=-1)
        scores: list[float] = logprobs_TV.gather(1, ids_1T[0, 1:, None]).squeeze(1).tolist()
        return scores

    def close(self) -> None:
        del self._model
        if self._device == "cuda":
            torch.cuda.empty_cache()

    def _read_model(self, path: str) -> Any:
        model = load_model(path, **self._options)
        return model.to(self._device).eval()

    def _pad(self, prompts_ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, prompts_ids))
        ids_BP = np.full((len(prompts_ids), longest), self._pad_id)
        mask_BP = np.zeros((len(prompts_ids), longest), dtype=np.int64)
        for row, prompt in enumerate(prompts_ids):
            ids_BP[row, longest - len(prompt) :] = prompt
            mask_BP[row, longest - len(prompt) :] = 1
        return torch.from_numpy(ids_BP).to(self._device), torch.from_numpy(mask_BP).to(self._device)

    def _build_stop_criteria(self, stop: tuple[str, ...]) -> StopStringCriteria:
        try:
            return StopStringCriteria(self._tokenizer, list(stop))
        except ValueError as error:
            raise ModelError(
                f"transformers cannot watch for the stop strings {stop} with this tokenizer "
                f"({error}); leave rollout.stop empty or use rollout.engine = 'vllm'"
            ) from error


class _StopStringWatch(StoppingCriteria):  # type: ignore[misc]
    """Looks for stop strings in completions, not prompts. `completed` collects, per step, which
    rows had just completed one; shape (B,)."""

    def __init__(self, criteria: StopStringCriteria, *, prompt_length: int) -> None:
        self.completed: list[torch.Tensor] = []
        self._criteria = criteria
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> torch.BoolTensor:
        self.completed.append(self._criteria(input_ids[:, self._prompt_length :], scores))
        return self.completed[-1]


def _end_ids(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids that end a completion: the tokenizer's and all that the model declares, as in TRL."""
    declared = generation.eos_token_id
    declared = [declared] if isinstance(declared, int) else list(declared or [])
    own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return sorted({*own, *declared})


def _cut(
    tokens_BT: torch.Tensor, logprobs_BT: torch.Tensor, ended_BT: torch.Tensor
) -> list[SampledTokens]:
    """Every row up to its first end, that token included."""
    first_end_B = ended_BT.int().argmax(dim=1) + 1
    lengths_B = torch.where(ended_BT.any(dim=1), first_end_B, tokens_BT.shape[1]).tolist()
    stopped_B = ended_BT.any(dim=1).tolist()
    rows = zip(tokens_BT.tolist(), logprobs_BT.tolist(), lengths_B, stopped_B, strict=True)
    return [
        SampledTokens(
            token_ids=tokens[:length],
            logprobs=logprobs[:length],
            finish_reason="stop" if stopped else "length",
        )
        for tokens, logprobs, length, stopped in rows
    ]


def _by_published_names(
    model: Any, held: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield published name and tensor of a model whose tensors transformers converts.

        held        layers.0.mlp.experts.gate_up_proj (E, 2I, H)
        published   layers.0.block_sparse_moe.experts.0.w1.weight (I, H), .w3.weight, ...

    One layer follows the other: what is converted is a copy, and no two sets of weights are in
    memory. `revert_weight_conversion` is no published name of transformers.
    """
    for _, names in itertools.groupby(sorted(held, key=_layer_of), key=_layer_of):
        layer = {name: held[name].detach() for name in names}
        yield from revert_weight_conversion(model, layer).items()


def _layer_of(name: str) -> str:
    found = LAYER.match(name)
    return found[0] if found else ""
