"""Attention refuses kernels that do not repeat their bits, and nothing else does."""

import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from mortal_steps.policy.algorithms.stepping.reproducible import attend_reproducibly

OF_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
IDS = torch.tensor([[5, 8, 9, 30, 40, 22], [0, 0, 11, 6, 7, 12]])
MASK = (IDS > 0).long()


class Told(TorchDispatchMode):
    """Notes of each operation whether torch would refuse one that does not repeat its bits."""

    def __init__(self):
        super().__init__()
        self.refused, self.warned = [], []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if torch.are_deterministic_algorithms_enabled():
            warns = torch.is_deterministic_algorithms_warn_only_enabled()
            (self.warned if warns else self.refused).append(operation._schema.name)
        return operation(*args, **(kwargs or {}))


@contextlib.contextmanager
def warning_of_kernels():
    attend_reproducibly()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        AttentionInterface.register("sdpa", sdpa_attention_forward)


def gradients(model):
    model.zero_grad()
    model(input_ids=IDS, attention_mask=MASK, use_cache=False).logits.square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("recomputed", [False, True])
def test_attention_alone_refuses_kernels_that_do_not_repeat(model_path, recomputed):
    model = AutoModelForCausalLM.from_pretrained(model_path).train()
    if recomputed:
        model.gradient_checkpointing_enable()
    expected = gradients(model)
    with warning_of_kernels():
        with Told() as told:
            found = gradients(model)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    layers = model.config.num_hidden_layers
    forwards = told.refused.count(f"aten::{OF_ATTENTION}")
    assert forwards == layers * (1 + recomputed)
    assert told.refused.count(f"aten::{OF_ATTENTION}_backward") == layers
    assert not [name for name in told.warned if OF_ATTENTION in name]
    matrices = {"aten::mm", "aten::addmm", "aten::bmm"}
    assert not matrices & {*told.refused}  # what lies between two layers warns alone
    assert matrices & {*told.warned}
    assert all(map(torch.equal, found, expected))


def test_where_kernels_may_vary_nothing_is_refused(model_path):
    model = AutoModelForCausalLM.from_pretrained(model_path).train()
    with warning_of_kernels():
        torch.use_deterministic_algorithms(False)
        with Told() as told:
            gradients(model)
    assert not told.refused and not told.warned
