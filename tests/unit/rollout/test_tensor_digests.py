"""Digests of tensors: the same wherever and in whatever order they are computed, and others for
other tensors."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mortal_steps.rollout.weight_sync import tensor_digests as digests
from mortal_steps.rollout.weight_sync.tensor_digests import (
    MODULUS,
    digest_of,
    read_sums,
    sums_of,
    tensor_digests,
)

TYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8,
    torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
SHAPES = [
    (),
    (0,),
    (0, 3),
    (3, 0),
    (1,),
    (7,),
    (64,),
    (1, 1),
    (5, 3),
    (6, 8),
    (2, 3, 5),
    (3, 4, 16),
]
CUT = 1000, 37
"""A matrix whose rows lie in several chunks."""


def made(shape, dtype, seed=0):
    stream = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 256, (*shape, dtype.itemsize), generator=stream, dtype=torch.uint8)
    if dtype == torch.bool:
        return (values % 2).view(dtype).reshape(shape)
    return values.flatten().view(dtype).reshape(shape)


def digest(tensor):
    return tensor_digests([("a", tensor)])["a"]


def by_torch(tensor, size=digests.GPU_BYTES):
    """As a GPU computes them, chunk by chunk."""
    if not tensor.numel():
        return 0, 0
    rows = tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor.reshape(-1, tensor.shape[-1])
    found = [digests._sums_by_torch(*chunk) for chunk in digests._chunks(rows, 0, size)]
    random.Random(0).shuffle(found)
    return tuple(int(sums) % MODULUS for sums in torch.stack(found).sum(0))


def modulo(sums):
    return sums[0] % MODULUS, sums[1] % MODULUS


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_a_gpu_computes_is_what_a_cpu_computes(dtype, shape):
    tensor = made(shape, dtype)
    expected = modulo(sums_of(tensor))
    assert by_torch(tensor) == by_torch(tensor, 16) == expected
    assert digest(tensor).startswith(str(dtype).removeprefix("torch.") + ":")


def test_they_are_the_sums_that_are_described():
    tensor = made((5, 6), torch.int64)
    rows, columns, rows_again, columns_again = (
        [int(key) for key in digests._keys(seed, 0, 6)] for seed in (1, 3, 2, 4)
    )
    first = second = 0
    for row, column in itertools.product(range(5), range(6)):
        word = int(tensor[row, column])
        first += rows[row] * columns[column] * word
        second += rows_again[row] * columns_again[column] * (word >> 32)
    assert modulo(sums_of(tensor)) == (first % MODULUS, second % MODULUS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(3_000_000,), (3000, 1024), (1, 2_500_000), (70_000, 40)])
def test_neither_threads_nor_chunks_change_a_digest(dtype, shape, monkeypatch):
    tensor, found = made(shape, dtype), set()
    before = torch.get_num_threads()
    monkeypatch.setattr(digests, "ALONE_BYTES", 0)
    for threads, size in itertools.product((1, 8), (1 << 12, 1 << 19, 1 << 25)):
        monkeypatch.setattr(digests, "CPU_BYTES", size)
        torch.set_num_threads(threads)
        try:
            found.add(digest(tensor))
        finally:
            torch.set_num_threads(before)
    assert len(found) == 1
    assert by_torch(tensor) == modulo(sums_of(tensor))


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(0, CUT[0]), max_size=6),
    dtype=st.sampled_from(TYPES),
    shape=st.sampled_from([CUT, (CUT[0],), (CUT[0], 3, 8)]),
)
def test_sums_of_parts_cut_between_rows_add_up(cuts, dtype, shape):
    tensor = made(shape, dtype)
    edges = sorted({0, CUT[0], *cuts})
    rows = tensor[0].numel() // (shape[-1] if len(shape) > 1 else 1)
    parts = [
        sums_of(tensor[begin:end], first_row=begin * rows)
        for begin, end in itertools.pairwise(edges)
    ]
    random.Random(1).shuffle(parts)
    total = tuple(sum(part[i] for part in parts) for i in (0, 1))
    assert digest_of(dtype, shape, total) == digest(tensor)


def test_rows_far_apart_have_keys_of_their_own():
    """More rows than there are keys at a time."""
    tensor = torch.zeros(3 * digests.NUM_KEYS, 1, dtype=torch.int64)
    found = set()
    for row in (0, digests.NUM_KEYS, 2 * digests.NUM_KEYS):
        tensor[row] = 1
        found.add(digest(tensor))
        tensor[row] = 0
    assert len(found) == 3


@settings(max_examples=200)
@given(data=st.data(), dtype=st.sampled_from(TYPES), shape=st.sampled_from(SHAPES))
def test_a_flipped_bit_is_another_digest(data, dtype, shape):
    tensor = made(shape, dtype)
    assume(tensor.numel() and dtype != torch.bool)
    before = digest(tensor)
    content = tensor.reshape(-1).view(torch.uint8)
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] ^= 1 << data.draw(st.integers(0, 7))
    assert digest(content.view(dtype).reshape(shape)) != before


@settings(max_examples=200)
@given(
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=12, max_size=12),
    pair=st.lists(st.integers(0, 11), min_size=2, max_size=2, unique=True),
    shape=st.sampled_from([(12,), (3, 4), (4, 3), (2, 3, 2), (12, 1), (1, 12)]),
)
def test_two_swapped_elements_are_another_digest(values, pair, shape):
    tensor = torch.tensor(values, dtype=torch.float32)
    swapped = tensor.clone()
    swapped[pair] = tensor[pair[::-1]]
    assume(not torch.equal(swapped.view(torch.int32), tensor.view(torch.int32)))
    assert digest(swapped.view(shape)) != digest(tensor.view(shape))


@settings(max_examples=100)
@given(
    columns=st.integers(2, 9),
    signs=st.lists(st.integers(0, 8), min_size=1, max_size=8, unique=True),
)
def test_other_signs_are_another_digest(columns, signs):
    """The highest bits, of which a sum modulo 2^64 keeps the least."""
    tensor = torch.ones(4, columns)
    other = tensor.clone()
    for column in signs:
        other[:, column % columns] *= -1
    assume(not torch.equal(other, tensor))
    assert digest(other) != digest(tensor)


def test_names_shapes_and_types_belong_to_it():
    a, b = made((4, 6), torch.float32, 1), made((4, 6), torch.float32, 2)
    assert tensor_digests([("a", a), ("b", b)]) != tensor_digests([("a", b), ("b", a)])
    forms = [a, a.view(6, 4), a.flatten(), a.view(torch.int32), a.t(), a.t().contiguous()]
    found = [digest(form) for form in forms]
    assert found[4] == found[5]
    assert len(set(found)) == 5
    zeros = [torch.zeros(shape, dtype=dtype) for shape in SHAPES for dtype in TYPES]
    assert len({digest(tensor) for tensor in zeros}) == len(zeros)


def test_how_a_tensor_lies_in_memory_does_not_belong_to_it():
    tensor = made((6, 8), torch.bfloat16)
    wide = torch.zeros(10, 20, dtype=torch.bfloat16)
    wide[3:9, 5:13] = tensor
    shifted = torch.zeros(49, dtype=torch.bfloat16)
    shifted[1:] = tensor.flatten()
    lying = [tensor.t().contiguous().t(), wide[3:9, 5:13], shifted[1:].view(6, 8)]
    assert {digest(form) for form in lying} == {digest(tensor)}
    assert digest(torch.nn.Parameter(torch.ones(3))) == digest(torch.ones(3))


def test_bits_and_not_numbers():
    assert digest(torch.tensor([torch.nan, 1.0])) == digest(torch.tensor([torch.nan, 1.0]))
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))


def test_deterministic_algorithms_are_no_hindrance():
    tensor = made(CUT, torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert by_torch(tensor) == modulo(sums_of(tensor))
    finally:
        torch.use_deterministic_algorithms(False)


def test_numbers_left_on_a_device_are_read_together():
    left = torch.tensor([-1, 5])
    assert read_sums([(1, 2), left, (3, 4), left + 1]) == [(1, 2), (-1, 5), (3, 4), (0, 6)]


def test_a_float_is_known_by_the_type_that_its_digest_names():
    assert digests.dtype_of(digest(torch.ones(2, dtype=torch.bfloat16))) == torch.bfloat16
