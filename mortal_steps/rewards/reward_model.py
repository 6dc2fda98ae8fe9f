"""A reward model at work. What imports this brings torch along.

The numbers are those of TRL's GRPOTrainer with the same model and the same completions in one call,
to the bit: a chat goes through the model's own template, a text is prompt and completion; padding
stands on the right, and the score is the one logit.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mortal_steps.errors import RewardError
from mortal_steps.models.hub import model_folder
from mortal_steps.rewards.kinds.model import ModelTerm


class RewardModel:
    """Scores completions as a reward function; `term` says with which model."""

    def __init__(self, term: ModelTerm) -> None:
        torch.set_num_threads(term.threads)
        self._term = term
        self._called = f"the reward model {term.model}"
        folder = model_folder(term.model, term.source)
        self._tokenizer = self._load_tokenizer(term.tokenizer or folder)
        self._model = self._load_model(folder)
        text_config = self._model.config.get_text_config()
        # A model reads its score at the last token that is no padding.
        text_config.pad_token_id = self._tokenizer.pad_token_id
        self._context = getattr(text_config, "max_position_embeddings", None)
        if term.max_length and self._context and term.max_length > self._context:
            raise RewardError(
                f"max_length = {term.max_length} of {self._called}: it takes {self._context} "
                "tokens; write that, or less"
            )

    def __call__(self, **columns: Any) -> list[float]:
        """Return a logit per completion. Raises `ValueError` for a text beyond the model's length,
        without `max_length`."""
        prompts, completions = columns["prompts"], columns["completions"]
        texts = [self._text(*pair) for pair in zip(prompts, completions, strict=True)]
        size = self._term.batch_size or max(1, len(texts))
        batches = (texts[start : start + size] for start in range(0, len(texts), size))
        return [score for batch in batches for score in self._scores(batch)]

    def _text(self, prompt: Any, completion: Any) -> str:
        if isinstance(prompt, str):
            end = self._tokenizer.eos_token if self._term.append_eos else None
            return f"{prompt}{completion}{end or ''}"
        messages = [*prompt, *completion]
        options = self._term.chat_template_kwargs or {}
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **options))

    def _scores(self, texts: Sequence[str]) -> Iterator[float]:
        longest = self._term.max_length
        cut = {"truncation": True, "max_length": longest} if longest else {}
        inputs = self._tokenizer(
            text=list(texts),
            return_tensors="pt",
            padding=True,
            padding_side="right",
            add_special_tokens=False,
            **cut,
        )
        length = inputs["input_ids"].shape[1]
        if self._context and length > self._context:
            raise ValueError(
                f"a completion is {length} tokens long with its prompt, and {self._called} takes "
                f"{self._context}; its setting max_length cuts off what is too much"
            )
        with torch.inference_mode():
            logits = self._model(**inputs.to(self._model.device)).logits[:, 0]
        yield from logits.float().tolist()

    def _load_tokenizer(self, folder: str) -> PreTrainedTokenizerBase:
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, truncation_side=self._term.truncation)
        except (OSError, ValueError) as error:
            raise RewardError(f"{self._called}: its tokenizer does not load: {error}") from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        if tokenizer.pad_token_id is None:
            raise RewardError(
                f"{self._called}: its tokenizer has neither a pad_token nor an eos_token, and "
                "completions of different lengths are padded; set one and save it again"
            )
        return tokenizer

    def _load_model(self, folder: str) -> PreTrainedModel:
        """Return the model; raises `RewardError` for missing weights, which would be random."""
        device, dtype = self._term.device, self._term.dtype
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RewardError(
                f"device = {device!r} of {self._called}: torch sees no GPU here; leave it out to "
                "compute on the CPU"
            )
        given = {} if dtype is None else {"dtype": dtype}
        try:
            model, found = AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=1,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are named below
                **given,
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise RewardError(f"{self._called} does not load: {error}") from error
        wrong = sorted(str(key) for key in found["missing_keys"])
        if found["mismatched_keys"]:
            names = ", ".join(str(key[0]) for key in found["mismatched_keys"])
            raise RewardError(
                f"{self._called} has another shape than a model of one label ({names}); a reward "
                "model has a sequence-classification head with num_labels = 1"
            )
        if wrong:
            raise RewardError(
                f"{self._called} has no weights for {', '.join(wrong)}; a reward model has a "
                "sequence-classification head (AutoModelForSequenceClassification)"
            )
        return model.to(device).eval()
