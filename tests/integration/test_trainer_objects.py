"""Models, tokenizers and adapters that are given to the trainer as objects."""

from pathlib import Path

import pytest
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from transformers import (
    AutoTokenizer,
    BitsAndBytesConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from mortal import MortalTrainer
from mortal_steps.config.model import NewModelConfig
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.models.local_folder import check_folder
from mortal_steps.policy.starting_model.new_model import build_model

SHAPE_OF_A_JUDGE = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 32,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    shape = NewModelConfig(
        hidden_size=32, num_layers=1, intermediate_size=32, max_position_embeddings=64
    )
    build_model(folder, shape, seed=1)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config_of(model, **given):
    return MortalTrainer(model, "sandbox", train_dataset="train.jsonl", **given).config


def new_model(tokenizer, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=32,
        max_position_embeddings=64,
        eos_token_id=tokenizer.eos_token_id,
    )
    return Qwen3ForCausalLM(shape).to(dtype)


def test_a_model_is_a_folder_that_is_named_after_its_files(tokenizer):
    first = config_of(new_model(tokenizer, 1), processing_class=tokenizer)
    check_folder(Path(first.model.name_or_path))
    assert first.model == config_of(new_model(tokenizer, 1), processing_class=tokenizer).model
    other = config_of(new_model(tokenizer, 2), processing_class=tokenizer)
    assert other.model.name_or_path != first.model.name_or_path
    half = config_of(new_model(tokenizer, 1, torch.bfloat16), processing_class=tokenizer)
    assert half.model.dtype == "bfloat16"


def test_a_model_that_was_read_brings_its_tokenizer(folder):
    config = config_of(Qwen3ForCausalLM.from_pretrained(folder))
    assert (Path(config.model.name_or_path) / "tokenizer.json").exists()


def test_a_model_without_a_tokenizer_is_refused(tokenizer):
    with pytest.raises(ModelError, match="processing_class=tokenizer"):
        config_of(new_model(tokenizer, 1))


def test_a_named_model_takes_no_other_tokenizer(folder, tokenizer):
    assert config_of(folder, processing_class=tokenizer).model.name_or_path == str(folder)
    other = AutoTokenizer.from_pretrained(folder)
    other.add_tokens(["<answer>"])
    with pytest.raises(ModelError, match="not the tokenizer of"):
        config_of(folder, processing_class=other)


def test_what_a_named_models_tokenizer_pads_with_is_up_to_its_user(folder):
    padded = AutoTokenizer.from_pretrained(folder)
    assert padded.pad_token != padded.eos_token
    padded.pad_token = padded.eos_token
    padded.padding_side = "left"
    assert config_of(folder, processing_class=padded).model.name_or_path == str(folder)
    padded.add_tokens(["<answer>"])
    with pytest.raises(ModelError, match="not the tokenizer of"):
        config_of(folder, processing_class=padded)


def test_what_is_no_model_to_train_from_is_refused(tokenizer):
    adapted = get_peft_model(new_model(tokenizer, 1), LoraConfig(target_modules="all-linear"))
    with pytest.raises(ModelError, match="peft_config=LoraConfig"):
        config_of(adapted, processing_class=tokenizer)
    with pytest.raises(ModelError, match="of type int"):
        config_of(7)
    with pytest.raises(ModelError, match=r"torch\.float16"):
        config_of(new_model(tokenizer, 1, torch.float16), processing_class=tokenizer)


def test_a_reward_model_is_an_object_with_its_tokenizer(tokenizer):
    torch.manual_seed(1)
    shape = Qwen3Config(**SHAPE_OF_A_JUDGE, vocab_size=len(tokenizer), num_labels=1)
    judge = Qwen3ForSequenceClassification(shape)
    given = {"reward_processing_classes": [tokenizer], "train_dataset": "train.jsonl"}
    (term,) = MortalTrainer("model", [judge], **given).config.rewards.terms
    assert (term.type, term.name) == ("model", "Qwen3ForSequenceClassification")
    scores = term.load()(prompts=["1+1=", "1+1="], completions=["2", "3"])
    assert len(set(scores)) == 2


def test_a_lora_config_is_keys(folder):
    given = LoraConfig(
        r=4,
        lora_alpha=8,
        lora_dropout=0.1,
        target_modules=["v_proj", "q_proj"],
        task_type="CAUSAL_LM",
    )
    training = config_of(folder, peft_config=given).training
    assert training.use_lora
    lora = training.lora
    assert (lora.r, lora.alpha, lora.dropout) == (4, 8, 0.1)
    assert lora.target_modules == ("q_proj", "v_proj")


def test_other_options_of_peft_go_with_it(folder):
    given = LoraConfig(
        use_rslora=True,
        bias="all",
        exclude_modules=["up_proj", "down_proj"],
        rank_pattern={"q_proj": 4},
        modules_to_save=["norm"],
    )
    lora = config_of(folder, peft_config=given).training.lora
    assert lora.target_modules == "peft-default"
    assert lora.peft == {
        "use_rslora": True,
        "bias": "all",
        "exclude_modules": ["down_proj", "up_proj"],
        "rank_pattern": {"q_proj": 4},
        "modules_to_save": ["norm"],
    }
    assert (lora.r, lora.alpha, lora.dropout) == (8, 8, 0.0)  # PEFT's own defaults


@pytest.mark.parametrize("kind", [PromptTuningConfig, IA3Config])
def test_another_kind_of_adapter_is_refused(folder, kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__}; the only supported adapter is"):
        config_of(folder, peft_config=kind())


def test_a_quantization_is_a_table(folder):
    given = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    config = config_of(folder, peft_config=LoraConfig(), quantization_config=given)
    assert config.model.quantization == {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16",
    }
    with pytest.raises(ConfigError, match="quantized weights are not trained"):
        config_of(folder, quantization_config=given)
    with pytest.raises(ConfigError, match="is of type dict"):
        config_of(folder, peft_config=LoraConfig(), quantization_config={"load_in_4bit": True})


def test_the_modules_of_an_adapter_have_one_place(folder):
    given = LoraConfig(target_modules="all-linear")
    with pytest.raises(ConfigError, match="the parameter peft_config"):
        MortalTrainer(
            folder,
            "sandbox",
            train_dataset="train.jsonl",
            peft_config=given,
            config={"training.lora.r": 8},
        )
