"""What a teacher says of the tokens of a completion, and how a run keeps it.

A completion of T = 2 tokens, with the K = 2 likeliest tokens of each position:

    sampled   [-0.1, -2.3]                   log-probability of the token that was sampled
    top       [[-0.1, -2.9], [-0.4, -2.3]]   of the likeliest tokens, the likeliest first
    top_ids   [[   7,   40], [   5,    6]]   which tokens those are

Packed, it takes 4 bytes and 4 + 8 K more a token: 1.5 MB for 256 completions of 512 tokens and
K = 1, 67 MB for K = 64. Numbers are float32, as TRL's trainer reads them: no bit is lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy

HEADER = struct.Struct("<I")
FLOAT, INTEGER = numpy.dtype("<f4"), numpy.dtype("<i4")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLogprobs:
    """Log-probabilities (nats) over the whole vocabulary, at the temperature of training."""

    sampled_T: Any
    """float32; of each token of the completion, given the prompt and the tokens before it."""
    top_TK: Any
    """float32; of the likeliest tokens at each position, in descending order."""
    top_ids_TK: Any
    """int32; token ids of these."""

    def packed(self) -> bytes:
        parts = [
            numpy.asarray(self.sampled_T, FLOAT),
            numpy.asarray(self.top_TK, FLOAT),
            numpy.asarray(self.top_ids_TK, INTEGER),
        ]
        return HEADER.pack(parts[1].shape[1]) + b"".join(part.tobytes() for part in parts)

    def cut(self, length: int) -> TokenLogprobs:
        """Return the same of the first tokens."""
        return TokenLogprobs(
            sampled_T=self.sampled_T[:length],
            top_TK=self.top_TK[:length],
            top_ids_TK=self.top_ids_TK[:length],
        )


def unpacked(content: bytes) -> TokenLogprobs:
    """Return what was packed."""
    (width,) = HEADER.unpack_from(content)
    length = (len(content) - HEADER.size) // bytes_per_token(width)
    floats = numpy.frombuffer(content, FLOAT, length * (1 + width), HEADER.size)
    ids = numpy.frombuffer(content, INTEGER, length * width, HEADER.size + floats.nbytes)
    return TokenLogprobs(
        sampled_T=floats[:length],
        top_TK=floats[length:].reshape(length, width),
        top_ids_TK=ids.reshape(length, width),
    )


def bytes_per_token(width: int) -> int:
    """Return what a token takes with so many likeliest ones."""
    return FLOAT.itemsize * (1 + width) + INTEGER.itemsize * width
