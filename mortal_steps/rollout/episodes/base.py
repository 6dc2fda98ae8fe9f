"""What `Episodes` are: they make a shard's completions, in one turn of the model or in several.

A shard is the unit of everything around them: it is sampled with one version of the weights,
committed as a whole, and sampled again as a whole after a kill. So that it gets the same bits then,
a completion is a function of its problem, its seed and the weights; a turn after the first takes a
seed that follows from the completion's, such as `derive_seed("turn", seed, 1)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.config import EnvironmentConfig, ModalConfig, RewardsConfig, RolloutConfig
from mortal_steps.errors import ConfigError, EngineError, StoreError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.episodes.table import EPISODES
from mortal_steps.store import RunStore
from mortal_steps.types import (
    ChatSettings,
    GeneratedGroup,
    PolicyVersion,
    Problem,
    SamplingParams,
    WeightsRef,
)
from mortal_steps.users_code.loading import import_code

CHAT_FILE = "data/chat.json"
"""Record of a run's `ChatSettings`, which the actor writes before anything is sampled."""
TOOL_EPISODES = "mortal_steps.environments.episodes:ToolEpisodes"
"""Class of the episodes of runs with tools or environments."""
GATEWAY_EPISODES = "mortal_steps.environments.gateway.episodes:GatewayEpisodes"
"""Class of the episodes of runs whose environment's code asks the model itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSettings:
    """What a run says of its tools and environments, besides `[environment]` and `[rewards]`."""

    passed_on: Sequence[str] = ()
    """Names of environment variables that users' code sees although they may hold credentials."""
    app: str = "mortal"
    """Name of the app on Modal, in whose sandboxes tools may run programs."""
    modal: ModalConfig | None = None
    """Settings of Modal where environments run in Modal Sandboxes; else None."""
    updates_per_step: int = 1
    """Optimizer updates of each step."""
    num_updates: int = 1
    """Optimizer updates of the whole run."""


class Episodes(ABC):
    """Makes a shard's completions with an engine that holds the weights. A subclass may take
    `rollout.episodes_options` as keyword arguments; it hands on the others."""

    def __init__(self, *, tokenizer: Any, template_options: Mapping[str, Any]) -> None:
        """`tokenizer` is transformers'; `template_options` are for its chat template."""
        self.tokenizer = tokenizer
        self.template_options = template_options

    @abstractmethod
    def sample(
        self,
        engine: Engine,
        problems: Sequence[Problem],
        seeds_PG: Sequence[Sequence[int]],
        params: SamplingParams,
        version: PolicyVersion,
    ) -> list[GeneratedGroup]:
        """Return a group for each problem, with a completion for each of the problem's seeds.

        What the model did not sample counts as an environment's: `Completion.turns` leaves it out,
        and its log-probabilities are 0.0. Raises `DataError` for a problem that cannot be used.
        """

    def begin_step(self, step: int) -> None:
        """Before each shard: the step that it is of. By default, it makes no difference."""
        return None

    def keep_progress_in(self, folder: Path, weights: WeightsRef) -> None:
        """Before each shard, which is sampled with `weights`: what must not be done again when it
        is sampled again after a kill may be kept in `folder`. By default, nothing is."""
        return None

    def forget_progress(self) -> None:
        """Drop what served to make the committed shard again. By default, nothing."""
        return None

    def leave_progress(self) -> None:
        """After a shard that failed: keep that, and leave no file of it open, or a Modal Volume
        cannot be reloaded for the next one. By default, nothing."""
        return None

    def took(self) -> Mapping[str, float]:
        """Return the seconds that the last shard spent outside the engine, by what was called:
        tools, `reset`, rewards. Calls beside each other add up. By default, nothing."""
        return {}

    def close(self) -> None:
        """End what the episodes have started; by default, nothing."""
        return None


def episodes_of(
    rollout: RolloutConfig, tokenizer: Any, template_options: Mapping[str, Any]
) -> Episodes:
    """Return the `Episodes` that the configuration names; raise `ConfigError` for a class that
    cannot be imported or does not take its settings."""
    name, options = rollout.episodes, rollout.episodes_options
    kind = EPISODES.load(name)
    try:
        made: Episodes = kind(
            tokenizer=tokenizer,
            template_options=template_options,
            **options,
        )
    except TypeError as error:
        raise ConfigError(
            f"rollout.episodes_options = {options}: {name} does not take these ({error})"
        ) from error
    return made


def tool_episodes(
    environment: EnvironmentConfig,
    rewards: RewardsConfig,
    tokenizer: Any,
    template_options: Mapping[str, Any],
    *,
    store: RunStore,
    settings: ToolSettings,
    before_start: Callable[[], None],
) -> Episodes:
    """Return the `Episodes` of a run with tools, with the stage's `rewards`; `before_start` comes
    before users' code is loaded. Raises `StoreError` if its chats are not settled."""
    chat = read_chat_settings(store)
    kind = GATEWAY_EPISODES if environment.asks else TOOL_EPISODES
    made: Episodes = import_code(kind, "environment")(
        tokenizer=tokenizer,
        template_options=template_options,
        environment=environment,
        rewards=rewards,
        chat=chat,
        settings=settings,
        run_dir=store.root,
        before_start=before_start,
    )
    return made


def read_chat_settings(store: RunStore) -> ChatSettings:
    """Return how chats with tools are rendered; raises `StoreError` where nobody has settled it."""
    found = store.find_record(CHAT_FILE, ChatSettings)
    if found is None:
        raise StoreError(
            f"{store.path(CHAT_FILE)} is missing, which says how chats with tools are rendered; "
            "the actor writes it when it prepares: restore it from a copy, or resume the run"
        )
    return found[1]


def check_groups(
    name: str, groups: Sequence[GeneratedGroup], seeds_PG: Sequence[Sequence[int]]
) -> None:
    """Raise `EngineError` unless groups fit problems and completions fit seeds."""
    found = [len(group.completions) for group in groups]
    wanted = [len(seeds) for seeds in seeds_PG]
    if found != wanted:
        raise EngineError(
            f"rollout.episodes = {name!r} gave groups of {found} completions for a shard of "
            f"{wanted}; `Episodes.sample` returns a completion for each seed"
        )
