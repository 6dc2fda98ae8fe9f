"""Folders that transformers loads, but that hold no model to go on training."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GenerationConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2Model,
    T5Config,
    T5ForConditionalGeneration,
)

from mortal_steps.errors import ModelError
from mortal_steps.policy.starting_model.starting_weights import check_starting_weights
from tests.support.refused import refused
from tests.support.smallest import SMALLEST

OTHERS = {
    "a classifier": (Qwen2ForSequenceClassification, Qwen2Config(**SMALLEST)),
    "a model without its head": (Qwen2Model, Qwen2Config(**SMALLEST)),
    "an encoder-decoder": (
        T5ForConditionalGeneration,
        T5Config(vocab_size=16, d_model=8, d_kv=8, d_ff=8, num_layers=1, num_heads=1),
    ),
}


@pytest.fixture
def folder(tmp_path):
    Qwen2ForCausalLM(Qwen2Config(**SMALLEST)).save_pretrained(tmp_path)
    return tmp_path


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def test_a_whole_model_may_hold_more_than_it_needs_and_tie_its_head(folder, tmp_path):
    check_starting_weights(str(folder))
    edit(folder, lambda tensors: tensors.update({"mtp.weight": torch.zeros(1)}))
    check_starting_weights(str(folder))
    tied = tmp_path / "tied"
    Qwen2ForCausalLM(Qwen2Config(**SMALLEST, tie_word_embeddings=True)).save_pretrained(tied)
    check_starting_weights(str(tied))


def test_weights_that_would_be_drawn_at_random_are_named(folder):
    edit(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with refused(ModelError, "lm_head.weight"):
        check_starting_weights(str(folder))


@pytest.mark.parametrize("what", OTHERS)
def test_what_continues_no_text_is_refused_by_name(what, tmp_path):
    kind, config = OTHERS[what]
    kind(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="name a causal language model"):
        check_starting_weights(str(tmp_path))


def test_quantized_weights_are_refused_with_their_method(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"is quantized \(gptq\)"):
        check_starting_weights(str(folder))


def test_code_of_its_own_is_named_with_the_key_that_allows_it(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kinds = {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.MineForCausalLM"}
    path.write_text(json.dumps({**config, "model_type": "mine", "auto_map": kinds}))
    with pytest.raises(ModelError, match=r"set model\.trust_remote_code = true"):
        check_starting_weights(str(folder))


def test_a_shape_that_is_not_the_configurations_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    Qwen2ForCausalLM(Qwen2Config(**{**SMALLEST, "vocab_size": 12})).save_pretrained(other)
    shutil.copy(other / "config.json", folder)
    with pytest.raises(ModelError, match="cannot be loaded"):
        check_starting_weights(str(folder))


def test_a_model_that_only_reads_is_told_apart(tmp_path):
    BertForMaskedLM(BertConfig(**SMALLEST)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="generates no text"):
        check_starting_weights(str(tmp_path))


def test_settings_that_stock_trl_samples_with_are_told(folder):
    assert check_starting_weights(str(folder)) == ()
    settings = GenerationConfig(repetition_penalty=1.3, min_length=0, no_repeat_ngram_size=1)
    settings.save_pretrained(folder)
    (told,) = check_starting_weights(str(folder))
    assert "have no_repeat_ngram_size = 1, which stock TRL heeds" in told
    model = Qwen2ForCausalLM.from_pretrained(folder)
    given = GenerationConfig(max_new_tokens=8, do_sample=True, repetition_penalty=1.0)
    ids = model.generate(torch.tensor([[1]]), generation_config=given)[0].tolist()
    assert len(set(ids)) == len(ids), "as `generate` does with what TRL leaves open"


def test_a_reward_model_may_begin_with_a_classifier_of_one_label(tmp_path):
    for labels in (1, 2):
        config = Qwen2Config(**SMALLEST, num_labels=labels)
        Qwen2ForSequenceClassification(config).save_pretrained(tmp_path / str(labels))
    assert check_starting_weights(str(tmp_path / "1"), scores=True) == ()
    with pytest.raises(ModelError, match="generates no text"):
        check_starting_weights(str(tmp_path / "1"))
    with pytest.raises(ModelError, match="gives a text 2 numbers"):
        check_starting_weights(str(tmp_path / "2"), scores=True)
