"""How many tokens a text can have at most, by proof, where the tokenizer allows one.

A tokenizer cuts a text into pieces and each piece into tokens. Where the pieces are the text's own
bytes, none left out and none added, and every token stands for at least one of them, a text has at
least one token and at most as many as bytes:

- byte-level BPE (GPT-2, Llama 3, Qwen) begins with one token per byte, all 256 of which are in its
  vocabulary, and only merges;
- a vocabulary of words has one token per piece, `unk_token` for pieces that it does not know.

NFC, the normalizer of some, leaves ASCII as it is and makes other text at most three times as long
in UTF-8 (<https://www.unicode.org/faq/normalization.html>).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

SPLITTING = {"Split", "Digits", "Punctuation"}
"""Pre-tokenizers that cut a text and keep all of it, but for behavior `Removed`."""
LONGEST_NFC = 3


def most_tokens(backend: Any) -> Callable[[str], int] | None:
    """At most so many tokens has a text, special tokens of a template apart, and one at least if it
    is not empty; None where nothing of that is proven. `backend` is a `tokenizers.Tokenizer`."""
    normalizers = [part["type"] for part in _parts(backend.normalizer, "normalizers")]
    cutting = list(_parts(backend.pre_tokenizer, "pretokenizers"))
    if normalizers not in ([], ["NFC"]) or not _covers(backend, cutting):
        return None
    longest = LONGEST_NFC if normalizers else 1
    return lambda text: len(text) if text.isascii() else longest * len(text.encode())


def _covers(backend: Any, cutting: list[dict[str, Any]]) -> bool:
    """Whether each token stands for a part of the text, and each part has its token."""
    from tokenizers import models, pre_tokenizers

    if any(part.get("behavior") == "Removed" for part in cutting):
        return False
    model, kinds = backend.model, [part["type"] for part in cutting]
    if isinstance(model, models.WordLevel):
        return backend.token_to_id(model.unk_token) is not None and SPLITTING.issuperset(kinds)
    if not isinstance(model, models.BPE) or not kinds or kinds[-1] != "ByteLevel":
        return False
    return (
        SPLITTING.issuperset(kinds[:-1])
        and not cutting[-1]["add_prefix_space"]
        and not model.continuing_subword_prefix
        and not model.end_of_word_suffix
        and None not in map(backend.token_to_id, pre_tokenizers.ByteLevel.alphabet())
    )


def _parts(component: Any, listed: str) -> Iterator[dict[str, Any]]:
    """A component of a tokenizer, or those that it is a sequence of."""
    if component is not None:
        yield from _flat(json.loads(component.__getstate__()), listed)


def _flat(state: dict[str, Any], listed: str) -> Iterator[dict[str, Any]]:
    if state["type"] != "Sequence":
        yield state
        return
    for part in state[listed]:
        yield from _flat(part, listed)
