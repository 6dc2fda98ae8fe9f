"""Episodes whose environments are in processes of their own, with a ledger of each shard."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import EnvironmentConfig, RewardsConfig
from mortal_steps.environments.chat import Chat
from mortal_steps.environments.ledger import Ledger
from mortal_steps.environments.processes.host import PREPARE_S, environment_host, sandbox_of
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.rewards.source_history import accepted_last, find_history
from mortal_steps.rollout.episodes.base import Episodes, ToolSettings
from mortal_steps.scores import reward_names
from mortal_steps.store import RunStore
from mortal_steps.types import ChatSettings, WeightsRef

BEGUN = "begun"
"""Folder of what was answered by the code that the run began with."""


class RecordedEpisodes(Episodes):
    """Holds the process that cells are forked from, and the ledger of the current shard."""

    def __init__(
        self,
        *,
        tokenizer: Any,
        template_options: Mapping[str, Any],
        environment: EnvironmentConfig,
        rewards: RewardsConfig,
        chat: ChatSettings,
        settings: ToolSettings,
        run_dir: Path,
        before_start: Callable[[], None] | None = None,
    ) -> None:
        """`rewards` are those of the stage: of these, the ones that need the environments are
        computed here. Judges keep what they paid for in `run_dir`. `before_start` is called before
        each start of the environments' process."""
        super().__init__(tokenizer=tokenizer, template_options=template_options)
        self._environment = environment
        self._rewards = rewards
        self._chat = Chat(tokenizer, chat, template_options)
        self._settings = settings
        self._sandbox = sandbox_of(environment, rewards, settings.app)
        self._host = environment_host(
            environment,
            dict(zip(reward_names(rewards), rewards.all_terms, strict=True)),
            sandbox=self._sandbox,
            judge=JudgedRun(run_dir=str(run_dir.absolute()), call_timeout_s=environment.timeout_s),
            passed_on=settings.passed_on,
            before_start=before_start,
            modal=settings.modal,
        )
        self._took: Mapping[str, float] = {}
        self._store = RunStore(run_dir)
        self._ledger: Ledger | None = None
        self._folder: Path | None = None
        """Folder of the progress, beside the shard."""

    def took(self) -> Mapping[str, float]:
        return self._took

    def keep_progress_in(self, folder: Path, weights: WeightsRef) -> None:
        self.leave_progress()
        self._folder = folder
        # Answers of other code, which was in use before, are not those of this one.
        accepted = accepted_last(find_history(self._store)) or BEGUN
        self._ledger = Ledger(folder / accepted, weights.sha256)

    def forget_progress(self) -> None:
        if self._ledger is not None:
            self._ledger.drop_rounds()
        self.leave_progress()

    def leave_progress(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def close(self) -> None:
        self._host.close()
        self.leave_progress()

    def _start_host(self) -> None:
        """Get ready to fork the cells of a shard."""
        self._host.start()
        self._host.call("prepare_forks", returns=None, timeout_s=PREPARE_S)
