"""`[data]`: where problems come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mortal_steps.config.section import Options, Section


class DataConfig(Section):
    """`[data]`: where problems come from."""

    source: str = ""
    """A hub dataset, a local folder, a .jsonl/.json/.parquet/.csv file, or
    `reasoning_gym:TASK`."""
    config: str | None = None
    """Configuration name of a hub dataset."""
    split: str = "train"
    """Split of a hub dataset or of a folder."""
    prompt_column: str = "prompt"
    """Text, or chat messages; every other column goes to the reward functions."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first N rows of the source."""
    shuffle: bool = True
    """Draw a new order every epoch, from the run's seed."""
    eval_source: str | None = None
    """Held-out problems from another source, same forms as `source`."""
    eval_split: str | None = None
    """Held-out problems from another split of `source` (or of `eval_source`)."""
    eval_samples: int = Field(0, ge=0)
    """With an evaluation source or split: use its first N rows (0: all). Without: hold N rows of
    `source` out of training."""
    on_long: Literal["error", "drop"] = "error"
    """What becomes of rows whose prompt leaves no room for `rollout.max_tokens` in the model's
    context: refuse to begin, or leave them out."""
    options: Options = Field(default_factory=dict)
    """Parameters of the reasoning_gym task, `size` included."""
