"""Tiny random models of which each has a byte-pair tokenizer with a real chat template.

TRL carries the texts of many families' templates. Tokenizers are trained on these texts and on
calls, so that most words have several tokenizations, as in real ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import chat_template_utils

MARKS = re.compile(r"<\|[a-z_A-Z]+\|?>|<[a-z_]+\|>|</?(?:tool_call|tool_response|think|arg_key)>")
CORPUS = [
    '{"name": "add", "arguments": {"amount": 12, "what": "apples"}}',
    'add(amount=3, what="pears") function=add parameter=amount total 34 error Tool not found.',
    "You are a helpful assistant. Reach the target. The total is 7, and that is the answer.",
    *(f"{number} {number * 7}" for number in range(60)),
]
CONTEXT = 4096


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the models of a family end what they say."""

    eos: str = "<|im_end|>"
    ends: tuple[str, ...] = ()
    """What ends a turn beside it."""
    bos: str | None = None


LLAMA = Family(eos="<|eot_id|>", bos="<|begin_of_text|>")
GEMMA = Family(eos="<eos>", ends=("<turn|>", "<|tool_response>"), bos="<bos>")
LFM = Family(bos="<|startoftext|>")
FAMILIES = {
    **dict.fromkeys(("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"), Family()),
    **dict.fromkeys(("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8"), Family()),
    **dict.fromkeys(("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"), Family()),
    "nemotron_3_5_lightning": Family(),
    **dict.fromkeys(("llama3_1", "llama3_2"), LLAMA),
    **dict.fromkeys(("gemma4", "gemma4_v3", "gemma4_v4", "gemma4_v5"), GEMMA),
    **dict.fromkeys(("lfm2_v2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"), LFM),
    "gptoss": Family(eos="<|return|>", ends=("<|call|>",), bos="<|startoftext|>"),
    "glm4moe": Family(eos="<|endoftext|>", ends=("<|user|>", "<|observation|>")),
}
"""The families that can call tools, by the name of their template in TRL."""


def template_text(name: str) -> str:
    """Return a chat template that TRL carries."""
    folder = chat_template_utils._CHAT_TEMPLATES_DIR
    return (folder / f"{name}.jinja").read_text(encoding="utf-8")


def build_tokenizer(name: str, family: Family | None = None) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the chat template `name`, the same every time."""
    family = family or FAMILIES[name]
    text = template_text(name)
    marks = dict.fromkeys(["<pad>", family.eos, *family.ends, *MARKS.findall(text)])
    marks = dict.fromkeys([*marks, *([family.bos] if family.bos else [])])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 260,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    trained.train_from_iterator([*CORPUS, *CORPUS, text], trainer)
    trained.add_tokens(
        [
            AddedToken(mark, special="|" in mark or mark == "<pad>", normalized=False)
            for mark in marks
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained,
        pad_token="<pad>",
        eos_token=family.eos,
        bos_token=family.bos,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = text
    return tokenizer


def build_model(
    folder: Path,
    name: str,
    *,
    context: int = CONTEXT,
    width: int = 16,
    window: int | None = None,
    seed: int = 0,
) -> Path:
    """Write a random model with the tokenizer of a family. With a `window`, it sees no more than
    the last so many tokens."""
    family = FAMILIES[name]
    tokenizer = build_tokenizer(name)
    ends = tokenizer.convert_tokens_to_ids([family.eos, *family.ends])
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=width // 8,
        num_key_value_heads=width // 8,
        head_dim=8,
        intermediate_size=2 * width,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        use_sliding_window=window is not None,
        sliding_window=window,
        max_window_layers=0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
