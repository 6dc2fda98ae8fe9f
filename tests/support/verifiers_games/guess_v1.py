"""A game for verifiers v1: guess a number."""

import os
import signal
from pathlib import Path

import verifiers.v1 as vf


class Number(vf.TaskData):
    answer: str


class Settings(vf.TaskConfig):
    is_away: bool = False
    is_scored: bool = True
    broken: str = ""
    """A file for `Scales`, which the player then has."""
    scales_at: str | None = None


class ScalesConfig(vf.ToolsetConfig):
    broken: str = ""


class Scales(vf.Toolset[ScalesConfig]):
    """Has a tool that cannot be asked until the file is there."""

    TOOL_PREFIX = None

    @vf.tool
    def weigh(self, item: str) -> str:
        """Weigh something."""
        if not Path(self.config.broken).exists():
            Path(self.config.broken).touch()
            raise ConnectionError("the scales are away")
        if item == "feathers":
            raise ValueError("too light")
        return f"{item} weigh 3."


class Guess(vf.Task[Number, vf.State, Settings]):
    @classmethod
    def toolsets(cls, config):
        return [Scales(ScalesConfig(broken=config.broken, url=config.scales_at))] * bool(
            config.broken
        )

    @vf.reward
    async def right(self, trace) -> dict[str, float]:
        if self.config.is_away:
            raise ConnectionError("the judge is away")
        right = {"right": float(trace.last_reply == self.data.answer)}
        return right if self.config.is_scored else {}


class Numbers(vf.TasksetConfig):
    task: Settings = Settings()


class Guesses(vf.Taskset[Guess, Numbers]):
    def load(self):
        for number in range(4):
            data = Number(prompt=f"Guess {number}", answer=str(number))
            yield Guess(data, self.config.task)


class Players(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=3)
    players: int = 1
    killed: str = ""
    """A file: until it is there, the process is killed at the second guess."""


class Game(vf.Env[Players]):
    async def run(self, task, agents):
        for _ in range(self.config.players):
            await self.play(task, agents)

    async def play(self, task, agents):
        killed = self.config.killed
        async with agents.player.interaction(task) as interaction:
            segment, guesses = await interaction.turn(), 1
            while not segment.terminated:
                if killed and guesses == 2 and not Path(killed).exists():
                    Path(killed).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if segment.last_reply == task.data.answer:
                    break
                is_less = segment.last_reply < task.data.answer
                segment = await interaction.turn("higher" if is_less else "lower")
                guesses += 1


__all__ = ["Game", "Guesses"]

if __name__ == "__main__":
    Scales.run()
