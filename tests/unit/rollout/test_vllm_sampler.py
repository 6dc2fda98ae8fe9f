"""What vLLM's samplers report where filters act; torch alone is needed to see it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mortal_steps.rollout.engines.vllm.sampler import sampling_logits

TEMPERATURE = 0.7
LOGITS = torch.tensor([[2.0, 1.0, 0.5, -1.0], [0.0, 3.0, 0.2, 1.0]])
WHOLE = (LOGITS / TEMPERATURE).log_softmax(-1)


class States:
    """The requests of vLLM's newer model runner, as far as its sampler asks."""

    def __init__(self, *, top_k=None, top_p=None, min_p=0.0):
        self.filters = top_k, top_p
        self.min_p = SimpleNamespace(np=np.full(2, min_p, dtype=np.float32))

    def get_top_k_top_p(self, expanded_idx_mapping, idx_mapping_np):
        return self.filters

    def apply_temperature(self, logits, expanded_idx_mapping, idx_mapping_np):
        logits.div_(TEMPERATURE)


class Newer:
    """A sampler that takes the likeliest token, and writes into its logits."""

    def __init__(self, states):
        self.sampling_states = states

    def sample(self, logits, expanded_idx_mapping, idx_mapping, idx_mapping_np, pos, *, drawn):
        drawn.append(logits.dtype)
        tokens = logits.argmax(-1)
        return tokens, logits.fill_(-torch.inf)

    def reported(self, logits):
        rows, drawn = torch.arange(2), []
        tokens, found = sampling_logits(Newer.sample)(
            self, logits, rows, rows, rows.numpy(), "positions", drawn=drawn
        )
        assert tokens.tolist() == LOGITS.argmax(-1).tolist()
        assert drawn == [logits.dtype], "it draws from what it was given"
        return found


ONE = torch.ones(2)
FILTERS = [{"top_k": ONE}, {"top_p": ONE}, {"min_p": 0.1}, {"top_k": ONE, "min_p": 0.1}]


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: "+".join(filters))
def test_the_newer_one_reports_logits_at_the_temperature_before_the_filters(filters):
    for logits in (LOGITS.clone(), LOGITS.bfloat16()):
        found = Newer(States(**filters)).reported(logits)
        assert found.dtype == torch.float32
        rounding = 0 if logits.dtype == torch.float32 else 2e-2
        assert torch.allclose(found.log_softmax(-1), WHOLE, atol=rounding + 1e-6)


def test_the_newer_one_is_left_alone_without_filters():
    assert torch.isinf(Newer(States()).reported(LOGITS.clone())).all()
