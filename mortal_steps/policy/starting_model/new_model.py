"""Build a small Qwen3-shaped model with a character tokenizer, the same bits for the same seed.

Qwen3 rather than Qwen2: for model type `qwen2`, `AutoTokenizer` puts Qwen's own byte-pair rules in
place of whatever tokenizer lies in the folder, and those drop unknown characters without a word.

A text of n characters is n tokens. `⟨` and `⟩` mark the special tokens, so that no text over the
alphabet can spell one:

    ⟨pad⟩ ⟨eos⟩ ⟨unk⟩ a b c ...
      0     1     2   3 4 5        "cab" -> [5, 3, 4]
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ModelError

PAD, EOS, UNK = "⟨pad⟩", "⟨eos⟩", "⟨unk⟩"
CALL, END, RESULT = "⟨call⟩", "⟨end⟩", "⟨result⟩"
"""Of a model that calls tools: they are around a call, and before a tool's answer."""

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}"
"""Each message ends with EOS; the answer begins where the last one ended."""

TOOL_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "⟨call⟩{{ call['function']['name'] }} {{ call['function']['arguments'] | tojson }}⟨end⟩"
    "{% endfor %}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ '⟨result⟩' if message['role'] == 'tool' }}{{ message['content'] + eos_token }}"
    "{% endif %}{% endfor %}"
)
"""The same with calls and their results: `⟨call⟩add {"a": 1}⟨end⟩⟨eos⟩⟨result⟩3⟨eos⟩`. The tools'
schemas are not told to the model: it learns from its warm start which tools there are."""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": EOS,
    "fields": {
        "tool_calls": {
            "open_pattern": CALL + r"(?P<name>\w+) ",
            "close": END,
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {"close": EOS, "content": "text"},
    },
}
"""How transformers reads what the model says."""


def build_model(folder: Path, config: NewModelConfig, seed: int) -> None:
    """Write a new float32 model and tokenizer as a `from_pretrained` folder, without touching
    random streams. Raises `ModelError` for what cannot be built."""
    tokenizer = build_tokenizer(config)
    shape = shape_of(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_tokenizer(config: NewModelConfig) -> PreTrainedTokenizerFast:
    """One token per character of the alphabet; decoding gives the text back, white space too."""
    _check_alphabet(config.alphabet)
    _check_words(config)
    marks = [CALL, END, RESULT] if config.tool_calls else []
    tokens = [PAD, EOS, UNK, *marks, *config.alphabet, *config.words]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    characters.pre_tokenizer = _split(config.words)
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        **({"additional_special_tokens": marks} if marks else {}),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=config.max_position_embeddings,
    )
    tokenizer.chat_template = TOOL_CHAT_TEMPLATE if config.tool_calls else CHAT_TEMPLATE
    if config.tool_calls:
        tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def _split(words: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    """Return what takes a text apart: the longest word that stands there, else one character."""
    if not words:
        return pre_tokenizers.Split("", behavior="isolated")
    longest_first = sorted(words, key=len, reverse=True)
    pattern = "|".join([*map(re.escape, longest_first), r"[\s\S]"])
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _check_alphabet(alphabet: str) -> None:
    repeated = [character for character, count in Counter(alphabet).items() if count > 1]
    if not alphabet or repeated:
        raise ModelError(
            f"model.new.alphabet = {alphabet!r}: "
            + (f"holds {repeated[0]!r} more than once" if repeated else "is empty")
            + "; list each character of the task once"
        )
    if "⟨" in alphabet or "⟩" in alphabet:
        raise ModelError(
            "model.new.alphabet: ⟨ and ⟩ mark the tokenizer's special tokens; leave them out"
        )


def _check_words(config: NewModelConfig) -> None:
    for index, word in enumerate(config.words):
        if "⟨" in word or "⟩" in word:
            wrong = "⟨ and ⟩ mark the tokenizer's special tokens; leave them out"
        elif not word or word in config.alphabet or word in config.words[:index]:
            wrong = "list each text of several characters once"
        else:
            continue
        raise ModelError(f"model.new.words holds {word!r}: {wrong}")


def shape_of(config: NewModelConfig) -> Qwen3Config:
    """Return transformers' configuration of the model; raises as `build_model`."""
    tokenizer = build_tokenizer(config)
    if config.head_dim % 2:
        raise ModelError(
            f"model.new.head_dim = {config.head_dim} is odd; rotary positions need pairs, so "
            f"choose {config.head_dim + 1}"
        )
    num_heads = max(1, config.hidden_size // config.head_dim)
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
