"""A model that reads the padding of shorter prompts is sampled with prompts of one length alone."""

import pytest
import torch
from transformers import AutoModelForCausalLM, RwkvConfig

from mortal_steps.config import ModelConfig, NewModelConfig, RolloutConfig
from mortal_steps.errors import EngineError
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from tests.support.rollout.cases import PARAMS


def test_prompts_of_several_lengths_are_refused(tmp_path):
    tokenizer = build_tokenizer(NewModelConfig())
    shape = {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        RwkvConfig(vocab_size=len(tokenizer), eos_token_id=1, bos_token_id=None, **shape)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path)
    engine = TransformersEngine(
        model_path=str(tmp_path),
        model=ModelConfig(),
        rollout=RolloutConfig(),
        tokenizer=lambda: tokenizer,
    )
    assert len(engine.sample([[5, 6], [7, 8]], [1, 2], PARAMS["plain"])) == 2
    with pytest.raises(EngineError, match="rwkv"):
        engine.sample([[5, 6, 7, 8], [7, 8]], [1, 2], PARAMS["plain"])
