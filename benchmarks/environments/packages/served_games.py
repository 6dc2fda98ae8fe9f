"""Servers of OpenEnv for what other packages bring, in the few lines that such a server has of its
own: a game of GEM, TextArena or OpenSpiel, an Atari game, and a Python interpreter behind MCP.

    python -c 'from served_games import *; serve(lambda: OpenSpiel("catch"), Choose)' PORT
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

SESSIONS = 64
DRAWING = threading.Lock()
"""Some games draw from the random stream of the whole process, which they seed before."""


class Say(Action):
    message: str


class Choose(Action):
    action_id: int


class Seen(Observation):
    text: str = ""
    legal_actions: list[int] = Field(default_factory=list)


class Game(Environment[Any, Seen, State]):
    """A session."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    @property
    def state(self) -> State:
        return State()


class Gem(Game):
    def __init__(self, name: str) -> None:
        import gem

        super().__init__()
        self._game = gem.make(name)

    def reset(self, seed: int | None = None, **others: Any) -> Seen:
        with DRAWING:
            text, _ = self._game.reset(seed=seed)
        return Seen(text=text)

    def step(self, action: Say, **others: Any) -> Seen:
        text, reward, is_over, is_cut, _ = self._game.step(action.message)
        return Seen(text=text, reward=reward, done=is_over or is_cut)


class TextArena(Game):
    def __init__(self, name: str) -> None:
        import textarena

        super().__init__()
        self._game = textarena.make(name)

    def reset(self, seed: int | None = None, **others: Any) -> Seen:
        with DRAWING:
            self._game.reset(num_players=1, seed=seed)
        return Seen(text=self._game.get_observation()[1])

    def step(self, action: Say, **others: Any) -> Seen:
        is_over, _ = self._game.step(action=action.message)
        if is_over:
            return Seen(reward=self._game.close()[0][0], done=True)
        return Seen(text=self._game.get_observation()[1])


class OpenSpiel(Game):
    def __init__(self, name: str) -> None:
        import pyspiel

        super().__init__()
        self._game = pyspiel.load_game(name)

    def reset(self, seed: int | None = None, **others: Any) -> Seen:
        self._drawn = random.Random(seed)
        self._position = self._game.new_initial_state()
        return self._seen()

    def step(self, action: Choose, **others: Any) -> Seen:
        if action.action_id in self._position.legal_actions():
            self._position.apply_action(action.action_id)
        return self._seen()

    def _seen(self) -> Seen:
        position = self._position
        while position.is_chance_node():
            numbers, chances = zip(*position.chance_outcomes(), strict=True)
            position.apply_action(self._drawn.choices(numbers, chances)[0])
        is_over = position.is_terminal()
        return Seen(
            text=str(position),
            legal_actions=[] if is_over else position.legal_actions(),
            reward=position.rewards()[0],
            done=is_over,
        )


class Atari(Game):
    def __init__(self, name: str) -> None:
        import ale_py.roms

        super().__init__()
        self._console = ale_py.ALEInterface()
        self._cartridge = ale_py.roms.get_rom_path(name)

    def reset(self, seed: int | None = None, **others: Any) -> Seen:
        self._console.setInt("random_seed", (seed or 0) % 2**31)
        self._console.loadROM(self._cartridge)
        return self._seen(0.0)

    def step(self, action: Choose, **others: Any) -> Seen:
        return self._seen(self._console.act(action.action_id))

    def _seen(self, reward: float) -> Seen:
        return Seen(
            text=" ".join(map(str, self._console.getRAM())),
            legal_actions=[each.value for each in self._console.getMinimalActionSet()],
            reward=reward,
            done=self._console.game_over(),
        )


class Python(MCPEnvironment):
    """Runs code, as smolagents does."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP
        from smolagents.local_python_executor import LocalPythonExecutor

        tools = FastMCP("python")

        @tools.tool
        def run_code(code: str) -> str:
            """Run Python code; return what it prints and its last value."""
            ran = self._interpreter(code)
            return f"{ran.logs}{ran.output}"

        super().__init__(tools)
        self._made = LocalPythonExecutor

    def reset(self, seed: int | None = None, **others: Any) -> Seen:
        self._interpreter = self._made(additional_authorized_imports=[])
        self._interpreter.send_tools({})
        return Seen(text="Python is there.")

    def _step_impl(self, action: Action, **others: Any) -> Seen:
        raise TypeError(f"{action!r} calls no tool")

    @property
    def state(self) -> State:
        return State()


def serve(make: Callable[[], Any], action: type[Action], seen: type[Observation] = Seen) -> None:
    """Serve at the port that is the first argument."""
    app = create_app(make, action, seen, max_concurrent_envs=SESSIONS)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")


def serve_python() -> None:
    """Serve the interpreter."""
    serve(Python, CallToolAction, CallToolObservation)
