"""`type = "textarena"`: games of TextArena for one player, https://github.com/LeonGuertler/TextArena
(`pip install textarena`)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from mortal_steps.config.section import Options
from mortal_steps.environments.kinds.base import CalledEnvironment


class TextArenaEnvironment(CalledEnvironment):
    """`[environment]` with a game that `textarena.make` makes. Its rules and its first board are
    the prompt (behind the row's own, if it has one); what it says after a move is the user's next
    message."""

    needs: ClassVar[Mapping[str, str]] = {"textarena": "textarena"}
    is_in: ClassVar[tuple[str, ...]] = ("textarena",)

    type: Literal["textarena"] = "textarena"
    id: str
    """Its name there, such as `FrozenLake-v0`. Games of several players are refused: nobody plays
    the others."""
    args: Options = Field(default_factory=dict)
    """Further arguments of `textarena.make`."""

    def load(self) -> Mapping[str, Callable[..., Any]]:
        return {"": partial(TextArena, self)}


class TextArena:
    """An episode. A game that was begun and not played to its end has earned nothing."""

    def __init__(self, config: TextArenaEnvironment) -> None:
        import textarena

        self._own_moves = textarena.ObservationType.PLAYER_ACTION
        self._game = textarena.make(config.id, **config.args)
        self._reward: float | None = None
        """Reward of the player's last move; None before the first move."""

    def reset(self, *, seed: int, **row: Any) -> str:
        self._game.reset(num_players=1, seed=seed)
        return self._told()

    def _reply(self, text: str) -> str | None:
        is_done, _ = self._game.step(action=text)
        if not is_done:
            self._reward = 0.0
            return self._told()
        rewards, _ = self._game.close()
        self._reward = float(rewards[0])
        return None

    def _told(self) -> str:
        """Return what the game has said since the last move. Its wrappers would say everything
        again that was said before."""
        told = self._game.state.get_current_player_observation()
        return "\n".join(str(text) for _, text, kind in told if kind != self._own_moves)

    def get_reward(self) -> float | None:
        return self._reward
