"""The buffer in which TRL computes log-probabilities, no wider than the vocabulary.

TRL computes logits tile by tile, in a buffer of 32,768 columns whatever the vocabulary. With a
small vocabulary, each row of it lies on a page of memory of its own, and on a CPU all these pages
are mapped, cleared and given back twice an update. In a narrower buffer a tile has the same
columns, and each row begins at a multiple of 64 bytes as before: the same bits in less time.

Private name used here: TRL `trainer.utils._CHUNKED_LOGPROB_CHUNK_SIZE`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from trl.trainer import utils

ROW_MULTIPLE = 32
"""Columns of a row are a multiple of this: 64 bytes of bfloat16, 128 of float32."""


@contextlib.contextmanager
def narrow_tiles(model: Any) -> Iterator[None]:
    """For the time of the block, let TRL's buffer be no wider than the vocabulary of this model
    needs, if the model is on the CPU. A GPU keeps the buffer's memory, and gains nothing."""
    widest = utils._CHUNKED_LOGPROB_CHUNK_SIZE
    if model.device.type == "cpu":
        vocabulary = model.get_output_embeddings().weight.shape[0]
        needed = -(-vocabulary // ROW_MULTIPLE) * ROW_MULTIPLE
        utils._CHUNKED_LOGPROB_CHUNK_SIZE = min(widest, needed)
    try:
        yield
    finally:
        utils._CHUNKED_LOGPROB_CHUNK_SIZE = widest
