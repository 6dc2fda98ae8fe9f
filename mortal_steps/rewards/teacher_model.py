"""A teacher at work. What imports this brings torch along.

What it says of a completion is a function of the tokens alone, as long as `batch_size` is 1:
sequences are then not padded. It is asked once for each shard, and the answer is a record.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from mortal_steps.config import ModelConfig
from mortal_steps.errors import RewardError
from mortal_steps.models.hub import model_folder, tokenizer_folder
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.token_logprobs import TokenLogprobs

Tokens = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt, and of its completion."""


class TeacherModel:
    """Says log-probabilities of tokens; `term` says which model, and of which rows."""

    def __init__(self, term: TeacherTerm) -> None:
        torch.set_num_threads(term.threads)
        self._term = term
        self._called = f"[algorithm.teachers.{term.teacher}] ({term.model.name_or_path})"
        self._model = self._load(model_folder(term.model.name_or_path, term.model))
        sizes = self._model.config.get_text_config()
        self._context = getattr(sizes, "max_position_embeddings", None)
        self._num_tokens = min(_num_tokens(term.model) or sizes.vocab_size, sizes.vocab_size)
        if term.top_k > self._num_tokens:
            raise RewardError(
                f"algorithm.loss_top_k = {term.top_k}: {self._called} has a vocabulary of "
                f"{self._num_tokens} tokens; choose no more than that"
            )
        takes = inspect.signature(self._model.forward).parameters
        self._cuts_logits = "logits_to_keep" in takes

    def __call__(
        self,
        *,
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        log_teacher: Callable[[list[str | None]], None],
        log_metric: Callable[[str, float], None],
        **columns: Any,
    ) -> list[None]:
        """Report what it says of the rows that it teaches, and abstain from scoring all."""
        column = self._term.column
        names = columns[column] if column else [self._term.teacher] * len(prompt_ids)
        rows = [row for row, name in enumerate(names) if name == self._term.teacher]
        said: list[str | None] = [None] * len(prompt_ids)
        for start in range(0, len(rows), self._term.batch_size):
            batch = rows[start : start + self._term.batch_size]
            found = self._says([(prompt_ids[row], completion_ids[row]) for row in batch])
            for row, each in zip(batch, found, strict=True):
                said[row] = base64.b64encode(each.packed()).decode()
                log_metric(f"{self._term.name}/logprob", float(each.sampled_T.mean()))
        log_teacher(said)
        return [None] * len(prompt_ids)

    def _says(self, sequences: Sequence[Tokens]) -> list[TokenLogprobs]:
        whole = [[*prompt, *completion] for prompt, completion in sequences]
        width = max(map(len, whole))
        if self._context and width > self._context:
            raise RewardError(
                f"a completion is {width} tokens long with its prompt, and {self._called} takes "
                f"{self._context}; lower rollout.max_tokens or model.max_model_len"
            )
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in whole])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in whole])
        # The logits of a token stand at the one before it.
        first = min(len(prompt) for prompt, _ in sequences) - 1
        options = {"logits_to_keep": width - first} if self._cuts_logits else {}
        device = self._model.device
        with torch.inference_mode():
            output = self._model(
                input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False, **options
            )
            logits = output.logits if self._cuts_logits else output.logits[:, first:]
            starts = [len(prompt) - 1 - first for prompt, _ in sequences]
            return [
                self._of_logits(row[start : start + len(completion)], completion)
                for row, start, (_, completion) in zip(logits, starts, sequences, strict=True)
            ]

    def _of_logits(self, logits: torch.Tensor, completion: Sequence[int]) -> TokenLogprobs:
        logprobs = (logits.float() / self._term.temperature).log_softmax(-1)
        sampled = logprobs.gather(1, torch.tensor(completion, device=logprobs.device)[:, None])
        if sampled.isnan().any():
            raise RewardError(
                f"{self._called} computes log-probabilities that are no numbers; give it another "
                "dtype"
            )
        top = logprobs[:, : self._num_tokens].topk(self._term.top_k)
        return TokenLogprobs(
            sampled_T=sampled.squeeze(1).cpu().numpy(),
            top_TK=top.values.cpu().numpy(),
            top_ids_TK=top.indices.cpu().numpy(),
        )

    def _load(self, folder: str) -> PreTrainedModel:
        """Return the model; raises `RewardError` for missing weights, which would be random."""
        device, model = self._term.device, self._term.model
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RewardError(
                f"device = {device!r} of {self._called}: torch sees no GPU here; leave it out to "
                "compute on the CPU"
            )
        try:
            loaded, found = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=model.dtype,
                trust_remote_code=model.trust_remote_code,
                output_loading_info=True,
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise RewardError(f"{self._called} does not load: {error}") from error
        if wrong := sorted(str(key) for key in found["missing_keys"]):
            raise RewardError(f"{self._called} has no weights for {', '.join(wrong)}")
        return loaded.to(device).eval()


def find_tokenizer(model: ModelConfig) -> Any:
    """Return a teacher's tokenizer; None for one that has none, and consists of weights alone."""
    try:
        found = AutoTokenizer.from_pretrained(
            tokenizer_folder(model), trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    made_up = len(found) <= len(found.all_special_ids)  # by transformers, where there are no files
    return None if made_up else found


def _num_tokens(model: ModelConfig) -> int | None:
    """Return how many tokens a teacher's tokenizer has, which are the student's, if it has one.
    Embeddings may be padded beyond them, and those of two models of a family differently."""
    tokenizer = find_tokenizer(model)
    return None if tokenizer is None else len(tokenizer)
