"""`[checkpoints]` and `[retention]`: what is saved of a run, and what is kept."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from mortal_steps.config.field_metadata import Decides
from mortal_steps.config.section import Section

DEFAULT_KEEP_LAST = 2
"""One to go on from, and one for when that is damaged."""


class CheckpointsConfig(Section):
    """`[checkpoints]`: when the actor's complete state is saved."""

    save_steps: Annotated[int, Decides("save_strategy", "save_steps")] = Field(100, ge=1)
    """Save a checkpoint every N steps and at the end."""
    keep_last: int = Field(DEFAULT_KEEP_LAST, ge=1)
    """Keep the newest N checkpoints. If that is 1, the one before stays until the run stands at the
    newest."""
    keep_best: bool = True
    """Also keep the checkpoint with the best reward of an evaluation at its very step. In a run
    without evaluations: the one with the best mean training reward since the checkpoint before.
    A checkpoint at a step without an evaluation is never the best of a run that has evaluations:
    let `save_steps` be a multiple of `eval_steps`."""
    keep_rollouts: int | None = Field(None, ge=1)
    """Keep the prompts, completions and scores of the newest N steps, and of those that the newest
    `keep_last` checkpoints are replayed through; default: of all steps."""

    keep_completed: int | None = Field(None, ge=1)
    """Keep the newest N checkpoints, and the best one, once the run is completed; of the published
    weights those stay that a run continued or forked at one of them samples with. Default: 1, or
    `keep_last` if that is not 2 or if `keep_rollouts` is set: without the completions of its
    beginning, a run can be made again from an older checkpoint alone."""
    background: bool = True
    """Write checkpoints beside the train steps that follow, out of a copy of the trained state in
    the actor's memory: for Adam two numbers per trained parameter, or three where the weights are
    not published as they are. Where there is no room for it, and on Modal, the next train step
    waits instead."""

    @property
    def num_after_completion(self) -> int:
        """Newest checkpoints that a completed run keeps, at most as many as one in progress."""
        keeps_more = self.keep_last != DEFAULT_KEEP_LAST or self.keep_rollouts is not None
        of_its_own = self.keep_last if keeps_more else 1
        return min(self.keep_completed or of_its_own, self.keep_last)

    @model_validator(mode="after")
    def _a_run_may_go_on_from_the_last_checkpoint_but_one(self) -> Self:
        if self.keep_rollouts is not None and self.keep_last == 1:
            raise ValueError(
                f"checkpoints.keep_rollouts = {self.keep_rollouts} needs keep_last = 2 or more: a "
                "run that is killed while its newest checkpoint is noted goes on from the one "
                "before; raise keep_last, or keep all rollouts"
            )
        return self


class RetentionConfig(Section):
    """`[retention]`: what `mortal gc` may remove of a run. By default it removes nothing."""

    keep_days: float | None = Field(None, gt=0)
    """Keep the whole run until its last step is N days old, whether it was completed or not.
    Default: for ever."""
