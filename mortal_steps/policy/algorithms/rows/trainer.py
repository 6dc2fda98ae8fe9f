"""One of TRL's trainers that learn from a dataset, run from outside on rows that were prepared
once."""

from __future__ import annotations

import contextlib
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
        """Make one update, as the body of `Trainer._run_epoch` does: a micro-batch each, and the
        loss a mean over the items of all, of which the last ones of an epoch have fewer."""
        items = private.num_items(self, micro_batches)
        self.current_gradient_accumulation_steps = len(micro_batches)
        self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
        for number, inputs in enumerate(micro_batches, start=1):
            is_last = number == len(micro_batches)
            private.set_sync_gradients(self, is_last)
            apart = self.accelerator.no_sync(self.model_wrapped)
            with contextlib.nullcontext() if is_last else apart:
                private.count_loss(self, self.training_step(self.model_wrapped, inputs, items))
            if not is_last:
                self.control = self.callback_handler.on_substep_end(
                    self.args, self.state, self.control
                )
        self._apply_gradients()

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
