"""Digests of tensors, computed where the tensors are: sixteen bytes leave a GPU, not the weights.

A tensor is a matrix here: its last dimension is a row (in one dimension, each element is one), and
a row is words of eight bytes, or of four, two or one where these do not divide it. Rows and columns
have odd random keys of 64 bits. All is multiplied and added modulo 2^64, twice, with other keys:

    sum over r, c of   rows[r] * columns[c] * word[r, c]          (second: the word's upper half)

    [[5, 7],  ->  (5 * columns[0] + 7 * columns[1]) * rows[0]     of the rows 0..0
     [1, 2]]    + (1 * columns[0] + 2 * columns[1]) * rows[1]     of the rows 1..1, first_row = 1

Integers can be added in any order. So the sums are the same on a CPU and on a GPU, for any number
of threads and any chunks; and those of a tensor's parts, cut anywhere between rows, add up to its
own. So do those of parts cut in any other way, each in a tensor that is 0 elsewhere.

Two different tensors have the same sums by a chance of about 2^-32 at most. Whoever wants to can
make two such: this tells faults, not forgers. Files have digests of another kind (`store.digests`).
"""

import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

Sums = tuple[int, int]
AddUp = Callable[[Iterable[torch.Tensor]], list[Sums]]
WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
MODULUS = 1 << 64
NUM_KEYS = 1 << 16
"""Number of keys that are made and used at a time."""
CPU_BYTES, GPU_BYTES = 1 << 19, 32 << 20
"""Bytes of a chunk. What is computed of it lies beside it, up to eight times its size."""
ALONE_BYTES, MOST_THREADS = 8 << 20, 8
"""Smaller tensors are added up by the calling thread; handing them to others would take longer."""
ROWS, COLUMNS = (1, 2), (3, 4)
"""Seeds of the keys of both sums."""
_own = threading.local()


def tensor_digests(
    tensors: Iterable[tuple[str, torch.Tensor]], add_up: AddUp | None = None
) -> dict[str, str]:
    """`<dtype>:<hex>` of each tensor by its name, one after the other; none is kept. `add_up`
    returns the sums of each of them."""
    forms = {}

    def noted() -> Iterator[torch.Tensor]:
        for name, tensor in tensors:
            forms[name] = tensor.dtype, tuple(tensor.shape)
            yield tensor

    found = (add_up or sums_of_all)(noted())
    return {
        name: digest_of(*form, sums)
        for (name, form), sums in zip(forms.items(), found, strict=True)
    }


def sums_of_all(tensors: Iterable[torch.Tensor]) -> list[Sums]:
    return read_sums([sums_of(tensor) for tensor in tensors])


def digest_of(dtype: torch.dtype, shape: tuple[int, ...], sums: Sums) -> str:
    """`<dtype>:<hex>` of a tensor with these sums."""
    name = str(dtype).removeprefix("torch.")
    content = f"{name} {list(shape)} {sums[0] % MODULUS} {sums[1] % MODULUS}".encode()
    return f"{name}:{hashlib.blake2b(content, digest_size=16).hexdigest()}"


def dtype_of(digest: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, digest.partition(":")[0])
    return found


def sums_of(tensor: torch.Tensor, first_row: int = 0) -> Sums | torch.Tensor:
    """Both sums of a tensor, or of the rows of one from `first_row` on; on a GPU they stay there
    until they are read (`read_sums`)."""
    if not tensor.numel():
        return 0, 0
    rows = tensor.detach()
    rows = rows.reshape(-1, 1) if rows.dim() < 2 else rows.reshape(-1, rows.shape[-1])
    if tensor.device.type != "cpu":
        found = [_sums_by_torch(*chunk) for chunk in _chunks(rows, first_row, GPU_BYTES)]
        return torch.stack(found).sum(0)
    chunks = _chunks(rows, first_row, CPU_BYTES)
    threads = min(torch.get_num_threads(), MOST_THREADS)
    if threads == 1 or tensor.nbytes < ALONE_BYTES:
        sums = [_sums_by_numpy(*chunk) for chunk in chunks]
    else:
        with ThreadPoolExecutor(threads) as pool:
            sums = list(pool.map(lambda chunk: _sums_by_numpy(*chunk), chunks))
    return sum(first for first, _ in sums), sum(second for _, second in sums)


def read_sums(found: Sequence[Sums | torch.Tensor]) -> list[Sums]:
    """Return the numbers, of which all that are on a GPU come in one small copy."""
    there = [sums for sums in found if isinstance(sums, torch.Tensor)]
    read = iter(torch.stack([sums.to(there[0].device) for sums in there]).tolist() if there else [])
    return [tuple(next(read)) if isinstance(sums, torch.Tensor) else sums for sums in found]


Chunk = tuple[torch.Tensor, int, int]
"""Words of whole rows or of parts of rows, with their first row and their first column."""


def _chunks(rows: torch.Tensor, first_row: int, size: int) -> Iterator[Chunk]:
    row_bytes = rows.shape[1] * rows.itemsize
    width = next(width for width in WORDS if row_bytes % width == 0)
    height = max(1, size // row_bytes)
    row = 0
    while row < len(rows):
        stop = min(len(rows), row + height, row + NUM_KEYS - (first_row + row) % NUM_KEYS)
        words = _words(rows[row:stop], width)
        for column in range(0, words.shape[1], NUM_KEYS):
            yield words[:, column : column + NUM_KEYS], first_row + row, column
        row = stop


def _words(rows: torch.Tensor, width: int) -> torch.Tensor:
    aligned = rows.contiguous()
    if aligned.storage_offset() * aligned.itemsize % width:
        aligned = aligned.clone()
    return aligned.view(WORDS[width])


def _sums_by_torch(words: torch.Tensor, first_row: int, first_column: int) -> torch.Tensor:
    height, width = words.shape
    found = []
    for row_seed, column_seed in zip(ROWS, COLUMNS, strict=True):
        rows = _keys_on(words.device, row_seed, first_row, height)
        columns = _keys_on(words.device, column_seed, first_column, width)
        found.append(((words * columns).sum(1) * rows).sum())
        words = words >> 32 if words.itemsize == 8 else words
    return torch.stack(found)


def _sums_by_numpy(words: torch.Tensor, first_row: int, first_column: int) -> Sums:
    integers = words.numpy().astype(np.int64, copy=False)
    height, width = integers.shape
    found = []
    for row_seed, column_seed in zip(ROWS, COLUMNS, strict=True):
        rows = _keys(row_seed, first_row, height)
        columns = _keys(column_seed, first_column, width)
        numbers = integers.view(np.uint64)
        of_rows = numbers[:, 0] * columns if width == 1 else np.einsum("rc,c->r", numbers, columns)
        found.append(int(np.einsum("r,r->", of_rows, rows)))
        if words.itemsize == 8 and len(found) == 1:
            integers = np.right_shift(integers, 32, out=_memory_for(integers))
    return found[0], found[1]


def _memory_for(words: np.ndarray) -> np.ndarray:
    """Memory of this thread: to take new memory for each chunk would take most of the time."""
    memory: np.ndarray | None = getattr(_own, "memory", None)
    if memory is None or memory.size < words.size:
        memory = _own.memory = np.empty(words.size, dtype=np.int64)
    return memory[: words.size].reshape(words.shape)


def _keys(seed: int, first: int, count: int) -> np.ndarray:
    begin = first % NUM_KEYS
    return _block(seed, first // NUM_KEYS)[begin : begin + count]


def _keys_on(device: torch.device, seed: int, first: int, count: int) -> torch.Tensor:
    begin = first % NUM_KEYS
    return _block_on(device, seed, first // NUM_KEYS)[begin : begin + count]


@functools.lru_cache(maxsize=64)
def _block_on(device: torch.device, seed: int, block: int) -> torch.Tensor:
    return torch.from_numpy(_block(seed, block).view(np.int64)).to(device)


@functools.lru_cache(maxsize=64)
def _block(seed: int, block: int) -> np.ndarray:
    """Odd numbers by SplitMix64 (Steele, Lea and Flood, 2014)."""
    number = np.uint64((seed << 56) + block * NUM_KEYS) + np.arange(NUM_KEYS, dtype=np.uint64)
    mixed = number * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)
