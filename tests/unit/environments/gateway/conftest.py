"""An episode behind a gateway, whose model says what a test has it say."""

import contextlib
import random
import threading

import openai
import pytest

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.gateway.conversation import Conversation
from mortal_steps.environments.gateway.server import EpisodeServer
from mortal_steps.environments.gateway.session import EpisodeSessions
from mortal_steps.environments.processes.waiting import Watch
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.types import Problem
from tests.support.environments.engine import Voice, called, tokenized_at_random
from tests.support.environments.models import build_tokenizer

FAMILY = "qwen2_5"
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    },
}


class Played:
    """The episode, and a model that says each text once: `seen` are the tokens before each."""

    def __init__(self, server, chat, **limits):
        self.chat, self.voice, self.tool = chat, Voice(FAMILY), TOOL
        self.sessions = EpisodeSessions(timeout_s=30)
        given = {"most_tokens": 400, "longest": 4096, "most_turns": None, **limits}
        self.conversation = Conversation(
            problem=Problem(id="train-7", prompt=[]),
            key="train-7",
            index=0,
            seed=3,
            chat=chat,
            **given,
        )
        self.session = self.sessions.add(self.conversation)
        self.seen, self.texts = [], []
        self.thread = threading.Thread(target=self._sample)
        self.may_say = threading.Event()
        self.may_say.set()
        self._server, self._opened = server, contextlib.ExitStack()
        self.begin()
        self.thread.start()

    def begin(self):
        """Run its code, maybe again: at another address."""
        self._opened.close()
        self.session.begin()
        self.base_url = self._opened.enter_context(self._server.address_of(self.session, int))
        self.client = openai.OpenAI(base_url=self.base_url, api_key="-", max_retries=0)
        self._opened.callback(self.client.close)

    @property
    def kept(self):
        running = self.conversation.running
        return [*running.prompt_ids, *running.token_ids]

    def says(self, *texts):
        self.texts += [
            self.voice.text(text) if isinstance(text, str) else text[0] for text in texts
        ]
        return self

    def calls(self, **arguments):
        return (self.voice.calls(called("add", **arguments)),)

    def ask(self, *messages, **options):
        return self.client.chat.completions.create(model="any", messages=messages, **options)

    def _sample(self):
        drawn = random.Random(0)
        while asking := self.sessions.wait(Watch(None, 0, [], {})):
            self.may_say.wait()
            for number, session in enumerate(asking):
                running = session.conversation.running
                self.seen.append([*running.prompt_ids, *running.token_ids])
                ids = tokenized_at_random(self.chat.tokenizer, self.texts.pop(0), drawn)
                sampled = SampledTokens(
                    token_ids=ids, logprobs=[-0.5] * len(ids), finish_reason="stop"
                )
                room = self.conversation.most_tokens - len(running.token_ids)
                running.add_turn(sampled, number, room, self.chat)
                session.answer()

    def close(self):
        self.may_say.set()
        self.session.end()
        self.thread.join()
        self._opened.close()


@pytest.fixture(scope="module")
def chat():
    tokenizer = build_tokenizer(FAMILY)
    return Chat(tokenizer, settle_chat(tokenizer, FAMILY), {})


@pytest.fixture(scope="module")
def server(chat):
    server = EpisodeServer(chat)
    yield server
    server.close()


@pytest.fixture
def play(server, chat):
    played = []

    def begin(**limits):
        played.append(Played(server, chat, **limits))
        return played[-1]

    yield begin
    for each in played:
        each.close()
