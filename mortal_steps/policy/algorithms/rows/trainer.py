"""One of TRL's trainers that learn from a dataset, run from outside on rows that were prepared
once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows.streams import Streams
from mortal_steps.policy.algorithms.stepping.loop import Observer, SetUpDone, Stepped
from mortal_steps.policy.ranks.world import from_all, rank

CONTROL_FILE = "control.json"


class SteppedOnRows(Stepped):
    """What makes a trainer of TRL's train on given micro-batches of prepared rows."""

    prepared: Any = None
    """The prepared rows by the names that TRL gives their sets, such as `train`."""
    streams: Streams
    """The random streams that this rank draws from."""
    streams_of_all: Sequence[Streams]
    """Those of all ranks, in their order, as they were when `gather_streams` was called."""

    def _prepare_dataset(self, dataset: Any, *given: Any) -> Any:
        return self.prepared[given[-1]]

    def train_on(self, micro_batches: Sequence[Any]) -> None:
        """Make one update, whose loss is a mean over the items of all micro-batches. The last
        update of an epoch may have fewer."""
        self.current_gradient_accumulation_steps = len(micro_batches)
        self.update(micro_batches, private.num_items(self, micro_batches))

    def gather_streams(self) -> None:
        """Let each rank know the streams of all: one of them writes them."""
        self.streams_of_all = from_all(self.streams)

    def streams_digest(self) -> str:
        """Return the digest of the streams of all ranks."""
        digests = [streams.digest() for streams in self.streams_of_all]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def save_control(self, folder: Path) -> None:
        """Write the random streams and the count of tokens, which TRL's checkpoints lack."""
        (folder / CONTROL_FILE).write_text(json.dumps({"tokens": private.tokens_seen(self)}))
        for number, streams in enumerate(self.streams_of_all):
            streams.save(folder / streams_file(number))

    def load_control(self, folder: Path) -> None:
        """Read what `save_control` wrote."""
        control = json.loads((folder / CONTROL_FILE).read_text())
        private.set_tokens_seen(self, control["tokens"])
        self.streams.load(folder / streams_file(rank()))

    def control_digests(self) -> dict[str, str]:
        return {"streams": self.streams_digest(), "tokens": str(private.tokens_seen(self))}


def streams_file(number: int) -> str:
    """Return the name of the file of a rank's random streams."""
    return f"streams-{number}.pt" if number else "streams.pt"


class ObserverOfRows(Observer):
    """Ends `train()` where everything is set up. A finished run has no epoch left to begin, and
    would go on into the end of `train()`."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.setting_up:
            raise SetUpDone
