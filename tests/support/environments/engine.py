"""An engine of a tiny model that says what scripts hold, and the texts of such scripts.

A random model never calls a tool. `ScriptedEngine` draws what it says by the seed and the prompt
from `scripts.json` beside the model, and splits it into tokens at random: most texts have many
tokenizations, and a model samples any of them. The file `SAMPLED`, if that is set, has a line for
each batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.types import SamplingParams
from tests.support.environments.models import FAMILIES, build_tokenizer

SCRIPTS = "scripts.json"
USER = {"role": "user", "content": "hi"}


class ScriptedEngine(TransformersEngine):
    """Loads and scores as the engine `transformers`, and says what is written."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._texts = json.loads((Path(arguments["model_path"]) / SCRIPTS).read_text())

    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        if "SAMPLED" in os.environ:
            with open(os.environ["SAMPLED"], "a") as file:
                file.write(f"{len(seeds)}\n")
        return [
            self._say(ids, seed, params.max_tokens)
            for ids, seed in zip(prompts_ids, seeds, strict=True)
        ]

    def _say(self, prompt_ids: Sequence[int], seed: int, most: int) -> SampledTokens:
        digest = hashlib.sha256(json.dumps([seed, list(prompt_ids)]).encode()).digest()
        drawn = random.Random(digest)
        ids = tokenized_at_random(self._tokenizer, drawn.choice(self._texts), drawn)[:most]
        return SampledTokens(
            token_ids=ids,
            logprobs=[drawn.uniform(-6.5, -6.0) for _ in ids],
            finish_reason="stop" if ids[-1] in self._end_ids else "length",
        )


def tokenized_at_random(tokenizer: Any, text: str, drawn: random.Random) -> list[int]:
    """Return ids of the text, split at random places outside special tokens."""
    ids: list[int] = []
    for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
        piece = tokenizer.convert_ids_to_tokens(token)
        if len(piece) > 1 and token not in tokenizer.added_tokens_decoder and drawn.random() < 0.3:
            cut = drawn.randrange(1, len(piece))
            for part in (piece[:cut], piece[cut:]):
                known = tokenizer.get_vocab().get(part)
                characters = [tokenizer.get_vocab()[character] for character in part]
                ids += characters if known is None else [known]
        else:
            ids.append(token)
    return ids


def called(name: str, **arguments: Any) -> dict[str, Any]:
    """A call, as it stands in a message."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


class Voice:
    """Writes what a model of a family would say."""

    def __init__(self, family: str, **template_options: Any) -> None:
        self._family = FAMILIES[family]
        self._tokenizer = build_tokenizer(family)
        template = settle_chat(self._tokenizer, family).chat_template
        self._options = {"tokenize": False, "chat_template": template, **template_options}

    @property
    def opening(self) -> str:
        """What a prompt ends with."""
        render = self._tokenizer.apply_chat_template
        closed = render([USER], add_generation_prompt=False, **self._options)
        whole = render([USER], add_generation_prompt=True, **self._options)
        return str(whole[len(closed) :])

    def calls(self, *calls: dict[str, Any]) -> str:
        """Say calls; of a family that makes one call at a time, the first."""
        try:
            return self._said({"role": "assistant", "content": "", "tool_calls": list(calls)})
        except TemplateError:
            return self._said({"role": "assistant", "content": "", "tool_calls": list(calls[:1])})

    def broken(self, call: dict[str, Any]) -> str:
        """Say a call that cannot be read."""
        said = self.calls(call)
        for mark in ("}", ")", "</parameter>", "</arg_value>"):
            if mark in said:
                return said.replace(mark, "", 1)
        raise ValueError(said)

    def text(self, text: str) -> str:
        """Say that."""
        return self._said({"role": "assistant", "content": text})

    def unfinished(self, text: str) -> str:
        """Say that, and no end."""
        said = self.text(text)
        return said[: said.index(text) + len(text)]

    def _said(self, message: dict[str, Any]) -> str:
        render = self._tokenizer.apply_chat_template
        prompt = render([USER], add_generation_prompt=True, **self._options)
        whole = render([USER, message], **self._options)
        # Of some, empty thinking is written otherwise once it is past.
        is_prefix = whole.startswith(prompt)
        said = whole[len(prompt) :] if is_prefix else whole.rpartition("<think>")[2]
        said = said.rstrip("\n")
        ends = (self._family.eos, *self._family.ends)
        return said if said.endswith(ends) else said + ends[-1]
