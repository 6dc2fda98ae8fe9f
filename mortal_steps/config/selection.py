"""`[selection]`: which problems a step samples, and which of their groups it trains on."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, SerializeAsAny

from mortal_steps.config.section import Section, of_its_kind
from mortal_steps.config.training import TrainingConfig
from mortal_steps.selection.table import ALL, SELECTIONS


class SelectionConfig(Section, extra="allow"):
    """`[selection]`: which problems a step samples, and which of their groups it trains on.

    An instance of this class itself stands for a selection of a user's own: a generator, which is
    named by `type` and gets the other keys as `draw.options`.
    """

    one_round: ClassVar[bool] = False
    """Whether a step has one round: then the next step's need not wait for its rewards."""

    type: str = ALL
    """`all`: the next `training.batch_size` problems of the dataset. `curriculum`: those whose pass
    rate is likely to be near one half, by a column of the dataset and by what earlier steps have
    shown of each problem. `screen`: some completions of many problems first, and the rest of the
    group where these differ. `dynamic`: further problems until the batch has groups whose rewards
    differ (DAPO). Or a generator of your own, as `file.py:name` or `module:name`
    (docs/selection.md)."""

    def begun(self) -> Self:
        """Return the settings with which a new run begins: a default that this version chooses
        otherwise than an earlier one has a value."""
        return self

    def check(self, training: TrainingConfig) -> None:
        """Raise `ValueError` for what does not go with these settings of `[training]`."""

    def rounds(self, draw: Any) -> Any:
        """Return the generator that selects a step's groups: a `Rounds` of a `Draw`
        (mortal_steps/selection/draw.py)."""
        return SELECTIONS.load(self.type)(draw)


def _of_its_kind(value: Any) -> Any:
    return of_its_kind(value, SelectionConfig, SELECTIONS)


def everything() -> SelectionConfig:
    default: SelectionConfig = _of_its_kind({})
    return default


Selection = Annotated[SerializeAsAny[SelectionConfig], BeforeValidator(_of_its_kind)]
