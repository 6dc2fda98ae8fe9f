"""mortal_steps.policy.starting_model.new_model: a model from a seed."""

import functools
import random
import tempfile
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    is_chat_template_stop_token_trained,
    parse_response,
    supports_tool_calling,
)

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.store.files import digest_file

SMALL = NewModelConfig(hidden_size=32, num_layers=1, intermediate_size=32)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: digest_file(path) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the default model of seed 0."""
    folder = tmp_path_factory.mktemp("model")
    build_model(folder, NewModelConfig(), seed=0)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(folder)


def test_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("two", 7), ("other", 8)):
        build_model(tmp_path / name, SMALL, seed)
    one, two, other = (digests(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one["model.safetensors"] != other["model.safetensors"]
    assert one["tokenizer.json"] == other["tokenizer.json"]


WITH_TOOLS = NewModelConfig(
    alphabet='abcknos,: "{}0123456789', words=("ask", "asks"), tool_calls=True
)


@pytest.mark.parametrize(
    "shape", [NewModelConfig(), SMALL, NewModelConfig(head_dim=48), WITH_TOOLS]
)
def test_the_number_of_parameters_is_known_before(tmp_path: Path, shape: NewModelConfig) -> None:
    build_model(tmp_path, shape, seed=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert shape.num_parameters == sum(part.numel() for part in model.parameters())


def test_the_callers_random_streams_stay_as_they_are(tmp_path: Path) -> None:
    def states() -> list[str]:
        streams = (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state())
        return [repr(stream) for stream in streams]

    before = states()
    build_model(tmp_path, SMALL, seed=0)
    assert states() == before


def test_loads_as_a_plain_folder(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values())
    assert model.dtype == torch.float32
    assert model.num_parameters() == 87_296
    assert model.get_input_embeddings().weight is model.lm_head.weight
    heads = (model.config.num_attention_heads, model.config.head_dim)
    assert heads == (2, 32)
    special = (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == special
    assert len(tokenizer) == model.config.vocab_size


@functools.cache
def loaded_tokenizer() -> PreTrainedTokenizerFast:
    """As the fixture, for hypothesis, which takes none."""
    with tempfile.TemporaryDirectory() as folder:
        build_model(Path(folder), SMALL, seed=0)
        return AutoTokenizer.from_pretrained(folder)


@given(st.text(alphabet=SMALL.alphabet))
def test_decoding_gives_the_text_back(text: str) -> None:
    tokenizer = loaded_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_any_alphabet_comes_back(tmp_path: Path) -> None:
    text = "<pad> é\u0301 日本\t\r\n  '' 🦀"
    alphabet = "".join(dict.fromkeys(text))
    build_model(tmp_path, SMALL.model_copy(update={"alphabet": alphabet}), seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_unknown_characters_and_special_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer("a#b" + tokenizer.eos_token)["input_ids"]
    assert ids[1] == tokenizer.unk_token_id
    assert ids[3] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab"


def test_chat_prompts_end_with_eos(tokenizer: PreTrainedTokenizerFast) -> None:
    question = [{"role": "user", "content": "abc="}]
    answered = [*question, {"role": "assistant", "content": "cba"}]
    rendered = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    assert rendered == "abc=⟨eos⟩"
    assert tokenizer.apply_chat_template(answered, tokenize=False) == "abc=⟨eos⟩cba⟨eos⟩"


def test_the_longest_word_is_one_token(tmp_path: Path) -> None:
    build_model(tmp_path, WITH_TOOLS, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("asksaskas⟨eos⟩")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["asks", "ask", "a", "s", "⟨eos⟩"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "asksaskas"


CALL = {"type": "function", "function": {"name": "ask", "arguments": {"a": "cab", "b": 12}}}


def test_trl_takes_a_tokenizer_with_tools_as_it_is(tmp_path: Path) -> None:
    build_model(tmp_path, WITH_TOOLS, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert supports_tool_calling(tokenizer)
    assert is_chat_template_prefix_preserving(tokenizer)
    assert is_chat_template_stop_token_trained(tokenizer)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "name": "ask", "content": "no"},
    ]
    prompt, called, answered = (
        tokenizer.apply_chat_template(messages[:count], tokenize=True, return_dict=False)
        for count in (1, 2, 3)
    )
    assert tokenizer.decode(answered[len(called) :]) == "⟨result⟩no⟨eos⟩"
    said = parse_response(tokenizer, called[len(prompt) :], prefix=prompt, tools=[])
    assert said == messages[1]
    plain = tokenizer("no⟨eos⟩")["input_ids"]
    assert parse_response(tokenizer, plain, prefix=answered, tools=[]) == {
        "role": "assistant",
        "content": "no",
    }


@pytest.mark.parametrize(("hidden_size", "num_heads"), [(16, 1), (32, 1), (48, 1), (64, 2)])
def test_heads_are_as_wide_as_asked(tmp_path: Path, hidden_size: int, num_heads: int) -> None:
    config = SMALL.model_copy(update={"hidden_size": hidden_size})
    build_model(tmp_path, config, seed=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (model.config.num_attention_heads, model.config.head_dim) == (num_heads, 32)
    assert model(input_ids=torch.tensor([[3, 4]])).logits.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alphabet": ""}, "is empty"),
        ({"alphabet": "abca"}, "holds 'a' more than once"),
        ({"alphabet": "ab⟨"}, "⟨ and ⟩ mark the tokenizer's special tokens"),
        ({"words": ["ask", "ask"]}, "model.new.words holds 'ask': list each"),
        ({"words": ["a"]}, "model.new.words holds 'a': list each"),
        ({"words": ["⟨call"]}, "model.new.words holds '⟨call': ⟨ and ⟩ mark"),
        ({"head_dim": 33}, "model.new.head_dim = 33 is odd"),
    ],
)
def test_bad_shapes_are_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(tmp_path / "model", SMALL.model_copy(update=changes), seed=0)
    assert not (tmp_path / "model").exists()
