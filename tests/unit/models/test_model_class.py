"""Models that take pictures too are loaded as they are trained."""

import json

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    Mistral3ForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from mortal_steps.errors import ModelError
from mortal_steps.models.model_class import check_known, load_model
from mortal_steps.policy.model_files.exporting import Export, export_model
from tests.support.refused import refused
from tests.support.smallest import SMALLEST

TEXT = {**SMALLEST, "head_dim": 8}
VISION = {**TEXT, "model_type": "pixtral", "image_size": 8, "patch_size": 4}


@pytest.fixture
def folder(tmp_path):
    config = AutoConfig.for_model(
        "mistral3", text_config={**TEXT, "model_type": "mistral"}, vision_config=VISION
    )
    AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_one_with_pictures_is_loaded_and_computes_with_text_alone(folder):
    model = load_model(str(folder), dtype="float32")
    assert type(model) is Mistral3ForConditionalGeneration
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 16)


def test_one_with_pictures_is_exported_from_a_checkpoint_as_it_is_trained(folder, tmp_path):
    model = load_model(str(folder), dtype="float32")
    checkpoint = tmp_path / "checkpoint"
    model.save_pretrained(checkpoint, save_original_format=False)
    export = Export(base=None, dtype="float32", trust_remote_code=False)
    (tmp_path / "out").mkdir()
    export_model(checkpoint, tmp_path / "out", export)
    again = load_model(str(tmp_path / "out"), dtype="float32").state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


def test_one_of_no_known_kind_is_still_an_error(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "architectures": ["Unknown"]}))
    with pytest.raises(ValueError, match="Unrecognized configuration class"):
        load_model(str(folder))


def test_a_causal_model_is_one(tmp_path):
    Qwen2ForCausalLM(Qwen2Config(**TEXT)).save_pretrained(tmp_path)
    assert type(load_model(str(tmp_path))) is Qwen2ForCausalLM


def test_a_token_without_an_embedding_is_named_with_the_remedy(tmp_path):
    model = Qwen2ForCausalLM(Qwen2Config(**TEXT))
    check_known([0, 15], model)
    with refused(ModelError, "token 16", "resize_token_embeddings"):
        check_known([3, 16], model)
