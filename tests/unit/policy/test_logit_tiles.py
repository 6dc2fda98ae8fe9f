"""TRL's buffer for logits is as narrow as the vocabulary while a step is trained, with the same
bits."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer import utils

from mortal_steps.policy.algorithms import algorithm_of
from mortal_steps.policy.algorithms.stepping.logit_tiles import narrow_tiles
from tests.support.policy.rollouts import make_batch, make_config

STOCK = 32768
ROWS, LENGTH = 24, 11


class Widest(TorchDispatchMode):
    """Notes how wide the widest matrix is that is allocated."""

    columns = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        if operation._schema.name == "aten::empty" and made.dim() == 2:
            self.columns = max(self.columns, made.shape[1])
        return made


def model_with(vocabulary, dtype=torch.float32):
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = Qwen3ForCausalLM(config).to(dtype)
    utils.add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
    return model


def scored(model):
    """Log-probabilities, entropies and all gradients of a batch, and how wide the buffer was."""
    torch.manual_seed(6)
    ids = torch.randint(0, model.config.vocab_size, (ROWS, LENGTH))
    model.zero_grad()
    with Widest() as widest:
        found = model(input_ids=ids, labels=ids, fused_lm_head=True)
        (found.loss + found.entropy.mean()).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [found.log_probs.detach(), found.entropy.detach(), *gradients], widest.columns


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("vocabulary", "width"), [(77, 96), (1000, 1024), (5003, 5024)])
def test_a_narrow_buffer_gives_the_same_bits(vocabulary, width, dtype):
    model = model_with(vocabulary, dtype)
    expected, columns = scored(model)
    assert columns == STOCK
    with narrow_tiles(model):
        found, columns = scored(model)
    assert columns == width
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    assert utils._CHUNKED_LOGPROB_CHUNK_SIZE == STOCK


def test_a_large_vocabulary_keeps_trls_tiles():
    with narrow_tiles(model_with(STOCK + 1)):
        assert utils._CHUNKED_LOGPROB_CHUNK_SIZE == STOCK


def test_an_error_leaves_trl_as_it_was():
    with pytest.raises(ZeroDivisionError), narrow_tiles(model_with(77)):
        raise ZeroDivisionError
    assert utils._CHUNKED_LOGPROB_CHUNK_SIZE == STOCK


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_a_train_step_uses_a_narrow_buffer(algorithm, model_path, tmp_path):
    config = make_config(algorithm={"type": algorithm})
    stepper = algorithm_of(config).stepper(
        config, model_path=model_path, num_steps=1, output_dir=tmp_path
    )
    stepper.begin()
    with Widest() as widest:
        stepper.train_step(make_batch(config, 0), seed=3)
    vocabulary = stepper._trainer.model.config.vocab_size
    assert vocabulary <= widest.columns < STOCK
    assert utils._CHUNKED_LOGPROB_CHUNK_SIZE == STOCK
