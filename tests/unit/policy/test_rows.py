"""Files that ranks write together, as one rank writes them."""

import torch
from safetensors.torch import save

from mortal_steps.policy.model_files.rows import write_rows

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
