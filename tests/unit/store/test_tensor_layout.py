"""A file that is laid out here is the one that the safetensors library writes."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save

from mortal_steps.errors import CorruptFileError
from mortal_steps.rollout.weight_sync.shared_tensors import DTYPES, NAMES, views
from mortal_steps.store.tensor_layout import WIDTHS, lay_out, read_layout

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


def written(tensors):
    """The file, put together from its layout."""
    layout = lay_out((name, NAMES[t.dtype], tuple(t.shape)) for name, t in tensors.items())
    content = bytearray(layout.size)
    content[: len(layout.header)] = layout.header
    for name, view in views(memoryview(content), layout).items():
        view.copy_(tensors[name])
    return bytes(content)


@pytest.mark.parametrize("chosen", [TENSORS, {"a.weight": TENSORS["a.weight"]}, {}])
def test_the_bytes_are_those_of_the_library(chosen):
    assert written(chosen) == save(dict(chosen), metadata={"format": "pt"})


def test_every_type_has_the_librarys_place():
    one_of_each = {name: torch.zeros(1, dtype=dtype) for name, dtype in DTYPES.items()}
    assert written(one_of_each) == save(one_of_each, metadata={"format": "pt"})
    assert all(WIDTHS[name] == dtype.itemsize for name, dtype in DTYPES.items())


def test_what_was_written_is_read():
    content = memoryview(bytearray(written(TENSORS)))
    read = views(content, read_layout(content, "here"))
    assert read.keys() == TENSORS.keys()
    assert all(torch.equal(read[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("damage", ["length", "offsets", "type", "text"])
def test_a_damaged_header_is_refused(damage):
    content = bytearray(written({"a": torch.ones(4)}))
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    if damage == "length":
        content[:8] = (1 << 40).to_bytes(8, "little")
    elif damage == "text":
        content[8] = 0xFF
    else:
        header["a"] |= {"offsets": {"data_offsets": [0, 17]}, "type": {"dtype": "F3"}}[damage]
        text = json.dumps(header).encode()
        content = len(text).to_bytes(8, "little") + text + bytes(16)
    with pytest.raises(CorruptFileError, match="here is no safetensors file"):
        read_layout(memoryview(content), "here")
