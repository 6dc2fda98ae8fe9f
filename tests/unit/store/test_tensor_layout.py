"""A file that is laid out here is the one that the safetensors library writes."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.model_files.tensor_file import write_tensors
from mortal_steps.store.tensor_layout import TYPE_NAMES, WIDTHS, layout_of

TENSORS = {
    "b.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "a.weight": torch.arange(5, dtype=torch.float32),
    "größe": torch.ones(2, dtype=torch.bfloat16),
    "a.half": torch.ones(3, dtype=torch.float16),
    "empty": torch.empty(0, 4),
    "scalar": torch.tensor(3.5),
    "counts": torch.arange(3),
    "small": torch.arange(3, dtype=torch.uint8),
    "mask": torch.tensor([True, False]),
}


@pytest.mark.parametrize("chosen", [TENSORS, {"a.weight": TENSORS["a.weight"]}, {}])
def test_the_bytes_are_those_of_the_library(tmp_path, chosen):
    write_tensors(tmp_path / "ours", chosen)
    assert (tmp_path / "ours").read_bytes() == save(dict(chosen), metadata={"format": "pt"})


def test_every_type_has_the_librarys_place(tmp_path):
    dtypes = {name: getattr(torch, name) for name in TYPE_NAMES}
    one_of_each = {name: torch.zeros(1, dtype=dtype) for name, dtype in dtypes.items()}
    write_tensors(tmp_path / "ours", one_of_each)
    assert (tmp_path / "ours").read_bytes() == save(one_of_each, metadata={"format": "pt"})
    assert all(WIDTHS[TYPE_NAMES[name]] == dtype.itemsize for name, dtype in dtypes.items())


def test_what_was_written_is_found_where_its_layout_says(tmp_path):
    write_tensors(tmp_path / "file", TENSORS)
    content = (tmp_path / "file").read_bytes()
    places = {place.name: place for place in layout_of(tmp_path / "file").places}
    assert places.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        place = places[name]
        assert (place.shape, place.num_bytes) == (tuple(tensor.shape), tensor.nbytes)
        written = content[place.start : place.start + place.num_bytes]
        assert written == tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("damage", ["length", "offsets", "type", "text"])
def test_a_damaged_header_is_refused(tmp_path, damage):
    path = tmp_path / "damaged"
    write_tensors(path, {"a": torch.ones(4)})
    content = bytearray(path.read_bytes())
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    if damage == "length":
        content[:8] = (1 << 40).to_bytes(8, "little")
    elif damage == "text":
        content[8] = 0xFF
    else:
        header["a"] |= {"offsets": {"data_offsets": [0, 17]}, "type": {"dtype": "F3"}}[damage]
        text = json.dumps(header).encode()
        content = len(text).to_bytes(8, "little") + text + bytes(16)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="damaged is no safetensors file"):
        layout_of(path)
