"""`[data]`: where problems come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, StringConstraints, model_validator

from mortal_steps.config.section import Options, Section
from mortal_steps.data.table import DATASET_SOURCES
from mortal_steps.users_code.loading import names_code

SetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.]*$")]
"""Of held-out problems: without a `-`, which ends it in the ids of problems."""

ENVIRONMENT = "environment"
"""The source whose rows `[environment]` brings."""


class DataConfig(Section):
    """`[data]`: where problems come from."""

    source: str = ""
    """A Hugging Face Hub dataset, a local folder, a .jsonl, .json, .parquet or .csv file,
    `reasoning_gym:TASK`, `environment` for the rows that the `[environment]` brings, or a source of
    your own (`file.py:name` or `module:name`)."""
    config: str | None = None
    """Configuration name of a Hub dataset."""
    split: str = "train"
    """Split of a Hub dataset or of a local folder."""
    prompt_column: str = "prompt"
    """Column with the prompts, as text or chat messages. Every other column is passed to the reward
    functions."""
    drop_columns: tuple[str, ...] = ()
    """Columns that nothing is done with, such as one of pictures, which a run refuses otherwise."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first N rows of the source."""
    shuffle: bool = True
    """Shuffle the rows anew in every epoch, seeded by the run's seed."""
    eval_source: str | None = None
    """Take the held-out problems from another source, which has the same forms as `source`."""
    eval_split: str | None = None
    """Take the held-out problems from another split of `source` (or of `eval_source`)."""
    eval_sets: dict[SetName, str] = Field(default_factory=dict)
    """Several sets of held-out problems by name, each from a source in the forms of `source`. An
    evaluation scores all of them: `reward` is the mean over all problems, and
    `eval_<name>_reward` that over one set. `eval_split` and `eval_samples` are about each set."""
    eval_samples: int = Field(0, ge=0)
    """With `eval_source`, `eval_sets` or `eval_split`: use its first N rows (0: all). Without
    any of them: hold N rows of `source` out of training."""
    exclude_held_out: bool = True
    """Leave a row out of training if its prompt is also held out. With `false`, as TRL has it, only
    the rows that `eval_samples` draws are left out, and the model is also evaluated on prompts that
    it is trained on. Set it if all prompts are the same text, with the task in another column.
    `MortalTrainer` sets `false` where it is given an `eval_dataset`."""
    on_long: Literal["error", "drop"] = "error"
    """What to do about rows whose prompt leaves no room for `rollout.max_tokens` in the model's
    context: `error` refuses to begin, `drop` leaves those rows out."""
    options: Options = Field(default_factory=dict)
    """Parameters of the reasoning_gym task, including `size`, or of a source of your own."""

    @property
    def eval_sources(self) -> Mapping[str, str]:
        """The sources of held-out problems by the name of their set; "" is that of `eval_source`
        or, with `eval_split` alone, of `source`."""
        if self.eval_source is not None or (self.eval_split is not None and not self.eval_sets):
            return {"": self.eval_source or self.source}
        return self.eval_sets

    @property
    def holds_out(self) -> bool:
        return bool(self.eval_sources or self.eval_samples)

    @model_validator(mode="after")
    def _one_or_several_sets(self) -> Self:
        if self.eval_source is not None and self.eval_sets:
            raise ValueError(
                f"eval_source = {self.eval_source!r} and eval_sets are both given; make the source "
                "a set, with a name"
            )
        return self


class MadeRows(NamedTuple):
    """A source whose rows are made by code, not read from a file, a folder or the hub."""

    kind: str
    """A name in `DATASET_SOURCES`, or a user's own `module:name` or `path/file.py:name`."""
    task: str
    """What follows the kind, after the colon."""


def made_rows(source: str) -> MadeRows | None:
    """Return the code that makes the source's rows; None if they are read."""
    kind, colon, task = source.partition(":")
    if colon and kind in DATASET_SOURCES:
        return MadeRows(kind, task)
    if names_code(source) and not Path(source).exists():
        return MadeRows(source, "")
    return None
