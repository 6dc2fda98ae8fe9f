"""A teacher by transformers. What imports this brings torch along.

What it says of a completion is a function of the tokens alone, as long as `batch_size` is 1:
sequences are then not padded. It is asked once for each shard, and the answer is a record.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel

from mortal_steps.errors import RewardError
from mortal_steps.models.hub import model_folder
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teachers import Teacher, Tokens
from mortal_steps.rewards.token_logprobs import TokenLogprobs


class TeacherModel(Teacher):
    """A model that transformers computes."""

    def __init__(self, term: TeacherTerm) -> None:
        super().__init__(term)
        torch.set_num_threads(term.threads)
        self._model = self._load(model_folder(term.model.name_or_path, term.model))
        sizes = self._model.config.get_text_config()
        self._context = getattr(sizes, "max_position_embeddings", None)
        self._num_tokens = self.num_tokens(sizes.vocab_size)
        self._cuts_logits = "logits_to_keep" in inspect.signature(self._model.forward).parameters

    def say(self, sequences: Sequence[Tokens]) -> list[TokenLogprobs]:
        whole = [[*prompt, *completion] for prompt, completion in sequences]
        width = max(map(len, whole))
        self.check_length(width, self._context)
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
        logprobs = (logits.float() / self.term.temperature).log_softmax(-1)
        sampled = logprobs.gather(1, torch.tensor(completion, device=logprobs.device)[:, None])
        if sampled.isnan().any():
            raise self.no_numbers()
        top = logprobs[:, : self._num_tokens].topk(self.term.top_k)
        return TokenLogprobs(
            sampled_T=sampled.squeeze(1).cpu().numpy(),
            top_TK=top.values.cpu().numpy(),
            top_ids_TK=top.indices.cpu().numpy(),
        )

    def _load(self, folder: str) -> PreTrainedModel:
        """Return the model; raises `RewardError` for missing weights, which would be random."""
        device, model = self.term.device, self.term.model
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RewardError(
                f"device = {device!r} of {self.called}: torch sees no GPU here; leave it out to "
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
            raise RewardError(f"{self.called} does not load: {error}") from error
        if wrong := sorted(str(key) for key in found["missing_keys"]):
            raise RewardError(f"{self.called} has no weights for {', '.join(wrong)}")
        return loaded.to(device).eval()
