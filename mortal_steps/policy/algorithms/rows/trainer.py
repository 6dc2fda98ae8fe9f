"""One of TRL's trainers that learn from a dataset, run from outside on rows that were prepared
once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows.streams import Streams
from mortal_steps.policy.algorithms.stepping.loop import Observer, SetUpDone, Stepped

CONTROL_FILE, STREAMS_FILE = "control.json", "streams.pt"


class SteppedOnRows(Stepped):
    """What makes a trainer of TRL's train on given micro-batches of prepared rows."""

    prepared: Any = None
    """The prepared rows by the names that TRL gives their sets, such as `train`."""
    streams: Streams
    """The random streams that it draws from."""

    def _prepare_dataset(self, dataset: Any, *given: Any) -> Any:
        return self.prepared[given[-1]]

    def train_on(self, micro_batches: Sequence[Any]) -> None:
        """Make one update, whose loss is a mean over the items of all micro-batches. The last
        update of an epoch may have fewer."""
        self.current_gradient_accumulation_steps = len(micro_batches)
        self.update(micro_batches, private.num_items(self, micro_batches))

    def save_control(self, folder: Path) -> None:
        """Write the random streams and the count of tokens, which TRL's checkpoints lack."""
        (folder / CONTROL_FILE).write_text(json.dumps({"tokens": private.tokens_seen(self)}))
        self.streams.save(folder / STREAMS_FILE)

    def load_control(self, folder: Path) -> None:
        """Read what `save_control` wrote."""
        control = json.loads((folder / CONTROL_FILE).read_text())
        private.set_tokens_seen(self, control["tokens"])
        self.streams.load(folder / STREAMS_FILE)

    def control_digests(self) -> dict[str, str]:
        return {"streams": self.streams.digest(), "tokens": str(private.tokens_seen(self))}


class ObserverOfRows(Observer):
    """Ends `train()` where everything is set up. A finished run has no epoch left to begin, and
    would go on into the end of `train()`."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.setting_up:
            raise SetUpDone
