"""One of TRL's trainers that learn from a dataset, run from outside on rows that were prepared
once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows.streams import Streams, draw_loader_seed
from mortal_steps.policy.algorithms.stepping.loop import Observer, SetUpDone, Stepped
from mortal_steps.policy.ranks.world import from_all, rank

CONTROL_FILE = "control.json"


class SteppedOnRows(Stepped):
    """What makes a trainer of TRL's train on given micro-batches of prepared rows."""

    prepared: Any = None
    """The prepared rows by the names that TRL gives their sets, such as `train`."""
    reference: dict[str, Any]
    """What the reference model says of the rows, in columns, by the same names; empty before it is
    computed."""
    streams: Streams
    """The random streams that this rank draws from."""
    streams_of_all: Sequence[Streams]
    """Those of all ranks, in their order, as they were when `gather_streams` was called."""

    def _prepare_dataset(self, dataset: Any, *given: Any) -> Any:
        return self.prepared[given[-1]]

    def _precompute_ref_logps(self, dataset: Any, name: str, batch_size: int) -> Any:
        """Add what the reference model says of the rows. TRL's constructor asks for it; it is
        computed in the first of them, and given back in all others, which draw as the loader of
        the first did."""
        if name in self.reference:
            draw_loader_seed()
        else:
            self.reference[name] = self._compute_reference(dataset, name, batch_size)
        return concatenate_datasets([dataset, self.reference[name]], axis=1)

    def _compute_reference(self, dataset: Any, name: str, batch_size: int) -> Any:
        """Have TRL compute it. TRL caches it in a file beside the rows, and all ranks read that:
        here in a folder where nothing else lies."""
        folder = Path(self.args.output_dir, "reference")
        beside = folder / "rows.arrow"
        if rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            beside.symlink_to(Path(dataset.cache_files[0]["filename"]).absolute())
        from_all(None)  # the others wait for it
        added: Any = super()
        whole = added._precompute_ref_logps(Dataset.from_file(str(beside)), name, batch_size)
        columns = [each for each in whole.column_names if each not in dataset.column_names]
        from_all(None)  # it is mapped by all
        if rank() == 0:
            shutil.rmtree(folder)
        return whole.select_columns(columns)

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
        (folder / CONTROL_FILE).write_text(
            json.dumps({"tokens": private.tokens_seen(self)}), encoding="utf-8"
        )
        for number, streams in enumerate(self.streams_of_all):
            streams.save(folder / streams_file(number))

    def load_control(self, folder: Path) -> None:
        """Read what `save_control` wrote."""
        control = json.loads((folder / CONTROL_FILE).read_text(encoding="utf-8"))
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
