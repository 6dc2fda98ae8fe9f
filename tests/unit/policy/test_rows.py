"""Files that ranks write together, as one rank writes them."""

import pytest
import torch
from safetensors.torch import save
from torch.distributed.tensor import distribute_tensor, init_device_mesh

from mortal_steps.errors import ActorStateError
from mortal_steps.policy.model_files.rows import save_pickle, write_rows
from mortal_steps.policy.ranks.parts import sums_of_parts
from tests.support.refused import refused

TENSORS = {
    "b.weight": torch.arange(12, dtype=torch.float32).view(3, 4),
    "a.bias": torch.arange(5, dtype=torch.bfloat16),
    "c.größe": torch.tensor(7, dtype=torch.int64),
    "a.mask": torch.tensor([True, False, True]),
    "empty": torch.empty(0, 3),
    "a.half": torch.ones(2, 2, dtype=torch.float16),
}


def test_a_file_of_rows_has_the_bytes_of_the_library(tmp_path):
    write_rows(tmp_path / "model.safetensors", TENSORS, None)
    written = (tmp_path / "model.safetensors").read_bytes()
    assert written == save(TENSORS, metadata={"format": "pt"})


def test_floating_point_numbers_are_cast_as_they_are_written(tmp_path):
    write_rows(tmp_path / "model.safetensors", TENSORS, torch.bfloat16)
    cast = {n: x.to(torch.bfloat16) if x.is_floating_point() else x for n, x in TENSORS.items()}
    written = (tmp_path / "model.safetensors").read_bytes()
    assert written == save(cast, metadata={"format": "pt"})


@pytest.fixture
def mesh():
    """One rank that tensors can be dealt out to."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_state_of_which_a_tensor_is_not_dealt_out_is_refused(mesh, tmp_path):
    state = {"step": torch.tensor(1.0), "exp_avg": distribute_tensor(torch.ones(2, 3), mesh)}
    save_pickle(tmp_path / "optimizer.pt", state)
    with refused(ActorStateError, "optimizer.pt"):
        save_pickle(tmp_path / "optimizer.pt", {**state, "absmax": torch.ones(3)})


def test_tensors_without_elements_have_sums(mesh):
    dealt_out = distribute_tensor(torch.empty(3, 0), mesh)
    assert sums_of_parts([dealt_out]) == sums_of_parts([torch.empty(3, 0)])
