"""Dialogues with tools, drawn, played as a rollout worker plays them, and held against TRL.

The engine says calls, plain text, halves of calls and any tokens at all, each text in one of its
many tokenizations. Whatever is tokenized a second time comes out differently sooner or later.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import pre_tokenizers
from transformers.utils import get_json_schema
from trl import GRPOTrainer, chat_template_utils

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.environments.rounds import Running, add_all_answers, sample_turns
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.types import Episode, PolicyVersion, Problem, SamplingParams
from tests.support.environments.models import FAMILIES, build_tokenizer

WORDS = ("total", "is", "7", "apples", "Tool not found.", "\n", "naïve café", "日本", '{"a": [1]}')
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
LONGEST_TOKEN = 16


def add(amount: int, what: str = "apples") -> str:
    """Add an amount.

    Args:
        amount: How much to add.
        what: Of what.
    """
    return f"total {amount} {what}"


def search(query: str) -> str:
    """Search for something.

    Args:
        query: What to look for.
    """
    return query


TOOLS = [add, search]
SCHEMAS = [get_json_schema(tool) for tool in TOOLS]


class Speaker:
    """What a model of a family may say, and how TRL's trainer would render the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tokenizer = build_tokenizer(name)
        self.chat = Chat(self.tokenizer, settle_chat(self.tokenizer, name), {})
        self.stock = _stock(name)
        vocabulary = self.tokenizer.get_vocab()
        self._vocabulary = dict(vocabulary)
        self._marks = re.compile(
            "|".join(re.escape(mark) for mark in self.tokenizer.get_added_vocab())
        )
        family = FAMILIES[name]
        self._ends = [family.eos, *family.ends]
        self._calls = list(self._said(random.Random(name)))

    def say(self, rng: random.Random) -> list[int]:
        """Return the tokens of one turn."""
        if rng.random() < 0.04:
            return [rng.randrange(len(self._vocabulary)) for _ in range(rng.randint(1, 12))]
        text = rng.choice(self._calls)
        if (kind := rng.random()) < 0.1:
            text = text[: rng.randint(1, len(text))]
        elif kind < 0.2:
            text = " ".join(rng.choices(WORDS, k=rng.randint(1, 6))) + rng.choice(self._ends)
        return self.tokenized(text, rng)

    def tokenized(self, text: str, rng: random.Random) -> list[int]:
        """Return one of the tokenizations of the text: its own, or any other."""
        if rng.random() < 0.2:
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        ids: list[int] = []
        start = 0
        for mark in self._marks.finditer(text):
            ids += self._pieces(text[start : mark.start()], rng)
            ids.append(self._vocabulary[mark.group()])
            start = mark.end()
        return [*ids, *self._pieces(text[start:], rng)]

    def is_canonical(self, ids: Sequence[int]) -> bool:
        """Whether the tokenizer would give the same tokens to their text."""
        text = self.tokenizer.decode(list(ids))
        return list(self.tokenizer.encode(text, add_special_tokens=False)) == list(ids)

    def _pieces(self, text: str, rng: random.Random) -> Iterator[int]:
        """Cut the text at random places, so that each piece is a token."""
        left = "".join(piece for piece, _ in BYTES.pre_tokenize_str(text))
        while left:
            fitting = [n for n in range(1, LONGEST_TOKEN + 1) if left[:n] in self._vocabulary]
            length = rng.choice([n for n in fitting if n <= len(left)])
            yield self._vocabulary[left[:length]]
            left = left[length:]

    def _said(self, rng: random.Random) -> Iterator[str]:
        """Return texts of turns with calls, as the template writes them."""
        for number in range(60):
            calls = [_call(rng) for _ in range(1 + number % 2)]
            content = rng.choice(["", " ".join(rng.choices(WORDS[:4], k=3))])
            turn = {"role": "assistant", "content": content, "tool_calls": calls}
            try:
                before, whole = (self._text(*turns) for turns in ([], [turn]))
            except TemplateError:  # it knows only one call in a turn
                continue
            said = whole[_shared(before, whole) :]
            end = max(said.rfind(mark) + len(mark) if mark in said else 0 for mark in self._ends)
            yield said[:end] if end else said + rng.choice(self._ends)

    def _text(self, *turns: Mapping[str, Any]) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": "Go on."}, *turns],
                tools=SCHEMAS,
                tokenize=False,
                add_generation_prompt=not turns,
                chat_template=self.stock.chat_template,
            )
        )


def _shared(before: str, whole: str) -> int:
    """Return how many characters both begin with."""
    pairs = zip(before, whole, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _call(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["add", "add", "search", "missing"])
    arguments: dict[str, Any] = {"query": " ".join(rng.choices(WORDS, k=2))}
    if name == "add":
        arguments = {"amount": rng.randint(-9, 999), "what": rng.choice(WORDS)}
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _stock(name: str) -> Any:
    """Return what stands for a trainer in TRL's methods; it is set as its constructor does."""
    tokenizer = chat_template_utils.add_response_schema(build_tokenizer(name))
    kept = chat_template_utils.is_chat_template_prefix_preserving(tokenizer)
    return SimpleNamespace(
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        _is_vlm=False,
        chat_template=(None if kept else chat_template_utils.get_training_chat_template(tokenizer)),
        chat_template_kwargs={},
        environment_factories=None,
        tools=TOOLS,
    )


@dataclass
class DrawnEngine:
    """Says what the speaker says, and keeps what it was asked and what it said."""

    speaker: Speaker
    rng: random.Random
    asked: list[list[list[int]]] = field(default_factory=list)
    said: list[list[SampledTokens]] = field(default_factory=list)
    dtype: str = "float32"
    max_model_len: int = 4096

    def sample(
        self, prompts_ids: Sequence[Sequence[int]], seeds: Sequence[int], params: SamplingParams
    ) -> list[SampledTokens]:
        self.asked.append([list(ids) for ids in prompts_ids])
        self.said.append([self._turn(params.max_tokens) for _ in prompts_ids])
        return self.said[-1]

    def _turn(self, most: int) -> SampledTokens:
        ids = self.speaker.say(self.rng)
        return SampledTokens(
            token_ids=ids[:most],
            logprobs=[-self.rng.random() for _ in ids[:most]],
            finish_reason="length" if len(ids) > most else "stop",
        )

    def load(self, folder: Path) -> None:
        raise NotImplementedError

    def score(self, token_ids: Sequence[int]) -> list[float]:
        raise NotImplementedError


@dataclass(kw_only=True)
class Played:
    """Episodes that were played, with all that was said in them, in the order it was."""

    engine: DrawnEngine
    episodes: list[Running]
    most: int
    longest: int
    rows: list[list[Running]] = field(default_factory=list)
    """Of each round, whose turns were sampled."""
    answers: dict[tuple[int, int], list[ToolAnswer]] = field(default_factory=dict)
    """By the episode's object and its number of turns."""


def play(
    speaker: Speaker,
    rng: random.Random,
    *,
    kind: type[Running] = Running,
    engine: type[DrawnEngine] = DrawnEngine,
) -> Played:
    """Play some episodes, in rounds, to their ends; a test may plant a `kind` of them that is at
    fault, or such an `engine`."""
    asked, chat = engine(speaker, rng), speaker.chat
    most, limit = rng.choice([60, 200, 1500]), rng.choice([1, 3, 6])
    played = Played(engine=asked, episodes=[], most=most, longest=rng.choice([900, 4096]))
    for number in range(rng.randint(1, 3)):
        prompt = [{"role": "user", "content": " ".join(rng.choices(WORDS, k=3))}]
        problem = Problem(id=f"p{number}", prompt=prompt)
        each = kind(
            problem=problem,
            key=problem.id,
            index=0,
            seed=rng.getrandbits(62),
            tools=SCHEMAS,
            prompt=prompt,
        )
        each.prompt_ids = chat.prompt_ids(prompt, SCHEMAS)
        played.episodes.append(each)
    running = list(played.episodes)
    params = SamplingParams(max_tokens=most, temperature=1.0)
    for number in range(limit):
        if not running:
            break
        played.rows.append(running)
        sample_turns(asked, running, params, number, chat)
        running = [each for each in running if each.goes_on]
        answers = {(each.key, each.index): _answers(each, rng) for each in running}
        played.answers |= {(id(e), len(e.turns)): answers[e.key, e.index] for e in running}
        add_all_answers(running, answers, chat, most=most, longest=played.longest)
        running = [each for each in running if each.goes_on]
    return played


def _answers(episode: Running, rng: random.Random) -> list[ToolAnswer]:
    return [
        ToolAnswer(name=call.name, content=" ".join(rng.choices(WORDS, k=rng.randint(0, 8))))
        for call in episode.calls
    ]


def check(played: Played) -> int:
    """Hold each episode against TRL's methods; return how many turns were sampled.

    Raises `AssertionError` for a token that the engine did not say, or that TRL would not append.
    """
    return sum(_check_episode(played, episode) for episode in played.episodes)


def _check_episode(played: Played, episode: Running) -> int:
    speaker = played.engine.speaker
    stock, chat = speaker.stock, speaker.chat
    (prompt_ids,), *_ = GRPOTrainer._tokenize_prompts(stock, [list(episode.prompt)])
    seen, logprobs, spans, messages = list(prompt_ids), [], [], []
    for asked, said in _turns(played, episode):
        assert asked == seen, f"{speaker.name}: the engine saw other tokens than were sampled"
        start = len(seen) - len(prompt_ids)
        kept = list(said.token_ids[: played.most - start])
        if not kept:
            break
        message = chat_template_utils.parse_response(stock._tokenizer, kept, seen, TOOLS)
        messages.append(message)
        seen += kept
        logprobs += said.logprobs[: len(kept)]
        spans.append((start, start + len(kept)))
        answers = played.answers.get((id(episode), len(spans)))
        assert bool(message.get("tool_calls")) == (answers is not None), f"{speaker.name}: calls"
        if answers is None:
            break
        said_by_tools = [{"role": "tool", "name": a.name, "content": a.content} for a in answers]
        suffix = GRPOTrainer._get_tool_suffix_ids(stock, said_by_tools)
        length = len(seen) - len(prompt_ids) + len(suffix)
        if length > played.most or len(prompt_ids) + length >= played.longest:
            break
        messages += said_by_tools
        seen += suffix
        logprobs += [0.0] * len(suffix)
    found = episode.completion(chat, PolicyVersion(0), Episode(stop="done"))
    assert [*episode.prompt_ids, *found.token_ids] == seen, f"{speaker.name}: other tokens"
    assert list(found.logprobs) == logprobs, f"{speaker.name}: other logprobs"
    assert [(turn.start, turn.stop) for turn in found.turns] == spans, f"{speaker.name}: spans"
    assert list(found.messages) == messages, f"{speaker.name}: other messages"
    masked = [place for place, kept in enumerate(found.loss_mask) if not kept]
    assert all(found.logprobs[place] == 0.0 for place in masked)
    assert found.num_sampled == len(found.token_ids) - len(masked)
    return len(spans)


def _turns(played: Played, episode: Running) -> Iterator[tuple[list[int], SampledTokens]]:
    """Yield what the engine saw and said in each turn of an episode."""
    rounds = zip(played.rows, played.engine.asked, played.engine.said, strict=True)
    for rows, asked, said in rounds:
        for row, ids, tokens in zip(rows, asked, said, strict=True):
            if row is episode:
                yield ids, tokens
