"""Is what was sampled ever tokenized again?"""

import random

import pytest

from mortal_steps.environments.rounds import Running
from tests.support.environments.dialogues import DrawnEngine, Speaker, check, play
from tests.support.environments.models import FAMILIES

TURNS = 25


@pytest.mark.parametrize("name", FAMILIES)
def test_engines_see_what_was_sampled_and_what_trl_would_append(name):
    speaker, rng = Speaker(name), random.Random(f"dialogues of {name}")
    num_turns = num_calls = num_other = 0
    while num_turns < TURNS:
        played = play(speaker, rng)
        num_turns += check(played)
        num_calls += sum(episode.num_calls for episode in played.episodes)
        said = [tokens.token_ids for tokens in played.engine.said[0]]
        num_other += sum(not speaker.is_canonical(ids) for ids in said)
    assert num_calls > TURNS / 4
    assert num_other > 0, "each text had the tokenizer's own tokens: nothing could have differed"


class TokenizedAgain(Running):
    """Goes on from the text of what was said."""

    def add_answers(self, answers, chat, most, longest):
        super().add_answers(answers, chat, most, longest)
        text = chat.tokenizer.decode(self.token_ids)
        self.token_ids = chat.tokenizer.encode(text, add_special_tokens=False)


class RenderedAgain(Running):
    """Goes on from the messages, as a client of a chat completions API does."""

    def add_answers(self, answers, chat, most, longest):
        super().add_answers(answers, chat, most, longest)
        ids = chat.prompt_ids([*self.prompt, *self.messages], self.tools)
        self.token_ids = ids[len(self.prompt_ids) :]


class AskedInText(DrawnEngine):
    """Sees the tokens that the tokenizer gives to the text of its prompt."""

    def sample(self, prompts_ids, seeds, params):
        tokenizer = self.speaker.tokenizer
        texts = [tokenizer.decode(ids) for ids in prompts_ids]
        again = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return super().sample(again, seeds, params)


@pytest.mark.parametrize("name", ["qwen3", "gptoss", "gemma4_v5"])
@pytest.mark.parametrize(
    "planted", [{"kind": TokenizedAgain}, {"kind": RenderedAgain}, {"engine": AskedInText}]
)
def test_what_is_tokenized_again_is_found(name, planted):
    speaker, rng = Speaker(name), random.Random(0)
    with pytest.raises(AssertionError, match=name):
        for _ in range(TURNS):
            check(play(speaker, rng, **planted))
