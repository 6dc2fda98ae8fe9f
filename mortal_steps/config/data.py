"""`[data]`: where problems come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mortal_steps.config.section import Options, Section


class DataConfig(Section):
    """`[data]`: where problems come from."""

    source: str = ""
    """A Hugging Face Hub dataset, a local folder, a .jsonl, .json, .parquet or .csv file, or
    `reasoning_gym:TASK`."""
    config: str | None = None
    """Configuration name of a Hub dataset."""
    split: str = "train"
    """Split of a Hub dataset or of a local folder."""
    prompt_column: str = "prompt"
    """Column with the prompts, as text or chat messages. Every other column is passed to the reward
    functions."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first N rows of the source."""
    shuffle: bool = True
    """Shuffle the rows anew in every epoch, seeded by the run's seed."""
    eval_source: str | None = None
    """Take the held-out problems from another source, which has the same forms as `source`."""
    eval_split: str | None = None
    """Take the held-out problems from another split of `source` (or of `eval_source`)."""
    eval_samples: int = Field(0, ge=0)
    """With `eval_source` or `eval_split`: use its first N rows (0: all). Without either: hold N
    rows of `source` out of training."""
    on_long: Literal["error", "drop"] = "error"
    """What to do about rows whose prompt leaves no room for `rollout.max_tokens` in the model's
    context: `error` refuses to begin, `drop` leaves those rows out."""
    options: Options = Field(default_factory=dict)
    """Parameters of the reasoning_gym task, including `size`."""
