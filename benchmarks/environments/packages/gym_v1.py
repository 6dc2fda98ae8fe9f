"""reasoning_gym's tasks as a taskset of verifiers v1, which has none of its own."""

import json
from collections.abc import Iterator

import reasoning_gym
import verifiers.v1 as vf


class Entry(vf.TaskData):
    gym: str
    entry: str


class Settings(vf.TasksetConfig):
    gym: str = "chain_sum"


class Solve(vf.Task[Entry]):
    @vf.reward
    async def answered(self, trace: vf.Trace) -> float:
        gym = reasoning_gym.create_dataset(self.data.gym, size=1, seed=0)
        return float(gym.score_answer(trace.last_reply, json.loads(self.data.entry)))


class Gym(vf.Taskset[Solve, Settings]):
    def load(self) -> Iterator[Solve]:
        for entry in reasoning_gym.create_dataset(self.config.gym, size=20, seed=0):
            data = Entry(prompt=entry["question"], gym=self.config.gym, entry=json.dumps(entry))
            yield Solve(data, self.config.task)


__all__ = ["Gym"]
