"""`[selection] type = "all"`: the next problems of the dataset."""

from typing import Literal

from mortal_steps.config.selection import SelectionConfig


class Everything(SelectionConfig, extra="forbid"):
    """The next `training.batch_size` problems of the dataset, and all of their groups: what the
    batch source `generate` does by itself."""

    type: Literal["all"] = "all"
