"""Episodes that keep a ledger of each shard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.environments.ledger import Ledger
from mortal_steps.rollout.episodes.base import Episodes
from mortal_steps.types import WeightsRef


class RecordedEpisodes(Episodes):
    """Holds the ledger of the shard that is made."""

    def __init__(
        self, *, tokenizer: Any, template_options: Mapping[str, Any], rewards: RewardsConfig
    ) -> None:
        super().__init__(tokenizer=tokenizer, template_options=template_options)
        # Answers of other code, which was accepted meanwhile, are not those of this one.
        self._accepted = rewards.accept_changed or "begun"
        self._ledger: Ledger | None = None
        self._folder: Path | None = None
        """Beside the shard."""

    def keep_progress_in(self, folder: Path, weights: WeightsRef) -> None:
        self._close_ledger()
        self._folder = folder
        self._ledger = Ledger(folder / self._accepted, weights.sha256)

    def forget_progress(self) -> None:
        if self._ledger is not None:
            self._ledger.drop_rounds()
        self._close_ledger()

    def leave_progress(self) -> None:
        self._close_ledger()

    def close(self) -> None:
        self._close_ledger()

    def _close_ledger(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()
