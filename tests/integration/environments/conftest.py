"""Cells of the environments in faulty.py."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import REPLY, EpisodeStart, ToolCall
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.hosts import base
from mortal_steps.hosts.process import HostProcess
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallArguments
from mortal_steps.rewards.kinds.get_reward import GetReward
from mortal_steps.rewards.kinds.users_code import FunctionTerm
from tests.support.environments import faulty
from tests.support.paths import ROOT


class Shop:
    """Asks cells with the environment `Shop`, as a rollout worker does."""

    def __init__(self, cells: Cells, folder: str, kind: str | None = "") -> None:
        self.cells, self.folder, self.kind = cells, folder, kind

    def start(self, generation: int = 0, **row) -> EpisodeStart:
        prompt = [{"role": "user", "content": "Shop."}]
        return EpisodeStart(
            environment=self.kind,
            prompt=prompt,
            row={"target": 7, "folder": self.folder, "prompt": prompt, **row},
            reset_seed=3,
            seed=generation,
        )

    def open(self, *rows, key="train-7"):
        starts = [self.start(generation, **row) for generation, row in enumerate(rows)]
        return self.cells.open({key: starts})[key]

    def call(self, asked, key="train-7"):
        calls = {
            (key, episode): [
                ToolCall(
                    name=name,
                    arguments=arguments,
                    call_id=f"{key}/{episode}/{number}",
                    is_reply=name == REPLY,
                )
                for number, (name, arguments) in enumerate(named)
            ]
            for episode, named in asked.items()
        }
        return {episode: answer for (_, episode), answer in self.cells.call(calls).items()}

    def say(self, episode, name, key="train-7", **arguments):
        """Return the content of the answer to one call."""
        (answer,) = self.call({episode: [(name, arguments)]}, key)[episode]
        return answer.content

    def kill(self) -> None:
        """Kill the process that was the last to begin an episode."""
        os.kill(int((Path(self.folder) / "pid").read_text()), signal.SIGKILL)

    def score(self, episodes, *names, key="train-7", limit_s=30.0, own=()):
        given = {
            "number": list(episodes),
            "trainer_state": TrainerState(global_step=1, max_steps=2),
        }
        arguments = CallArguments(by_name=given, problem_ids=[key] * len(episodes))
        return self.cells.score(key, episodes, arguments, dict.fromkeys(names, limit_s), own)

    def count(self, what) -> int:
        """Return how many times it was done."""
        return faulty.count(self.folder, what)


@pytest.fixture(scope="session")
def hosts():
    """Processes that have imported the environments, by their settings."""
    made: dict[tuple[str | None, str, tuple[str, ...]], HostProcess] = {}
    yield made
    for host in made.values():
        host.close()


@pytest.fixture
def make_shop(monkeypatch, tmp_path, hosts):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(base, "GRACE_S", 0.1)
    made = []

    def make(kind: str | None = "", factory: str = "Shop", **options):
        code = partial("{}:{}".format, faulty.__file__)
        if kind is None:
            options["tools"] = (code("visit"), code("visit_or_end"))
        else:
            options["factory"] = code(factory)
        environment = EnvironmentConfig(**{"timeout_s": 20.0, "on_error": "mask", **options})
        terms = {"near": FunctionTerm(function=code("near")), "Shop": GetReward(environment="Shop")}
        needed = (kind, factory, environment.outages)
        if needed not in hosts:
            hosts[needed] = environment_host(environment, terms)
        made.append(
            Cells(hosts[needed], environment, saving=[""] if factory == "SavedShop" else [])
        )
        return Shop(made[-1], str(tmp_path), kind)

    yield make
    for cells in made:
        cells.close()
