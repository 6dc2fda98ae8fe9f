"""The bytes of tensors on their way to a file.

From a GPU they come in pieces through page-locked memory, from which and to which it copies several
times as fast, and beside other work: while one piece is written, the next one is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

PIECE_BYTES = 16 << 20


def pieces_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The bytes of a tensor, piece by piece in the CPU's memory; each is good until the next one is
    asked for. Where the tensor lies there as it is written, they are its own memory."""
    content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if content.device.type == "cpu":
        yield content
        return
    if not len(content):
        return
    size = min(PIECE_BYTES, len(content))
    memory = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    yield from copied(content, memory, _recorded)


def copied(
    content: torch.Tensor, memory: list[torch.Tensor], record: Callable[[], Any]
) -> Iterator[torch.Tensor]:
    """The bytes of `content`, copied by turns into two pieces of memory. `record` returns an event
    that can be waited for: that all copies begun by then are done."""
    before: tuple[torch.Tensor, Any] | None = None
    for number, begin in enumerate(range(0, len(content), len(memory[0]))):
        part = content[begin : begin + len(memory[0])]
        piece = memory[number % 2][: len(part)]
        piece.copy_(part, non_blocking=True)
        done = record()
        if before is not None:
            before[1].synchronize()
            yield before[0]
        before = piece, done
    if before is not None:
        before[1].synchronize()
        yield before[0]


def _recorded() -> Any:
    event = torch.cuda.Event()
    event.record()
    return event
