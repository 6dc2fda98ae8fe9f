"""`[rollout.source_options]` of the batch source `atropos`."""

from typing import Annotated

from pydantic import Field

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.rollout import SourceOptions
from mortal_steps.errors import ConfigError


class AtroposOptions(SourceOptions, extra="forbid"):
    """How a run trains on the batches of an Atropos API server."""

    url: Annotated[str, NO_NUMBERS] = Field("http://localhost:8000", pattern=r"^https?://")
    """Address of the server, which `run-api` of atroposlib starts."""
    seq_len: int = Field(2048, ge=2)
    """Most tokens of a sequence, prompt included; the environments are told."""
    wandb_project: Annotated[str, NO_NUMBERS] = ""
    """Project of Weights & Biases that the environments log to; empty: they do not."""
    wandb_group: Annotated[str, NO_NUMBERS] = ""
    """Group of the environments there. Default: the run's id."""
    port: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1, le=65535)
    """Port of this machine at which the run's rollout workers serve the policy to the environments;
    each worker takes one, from this number on. Default: the run has no rollout workers, and
    something else serves what it publishes."""
    poll_s: Annotated[float, NO_NUMBERS] = Field(1.0, gt=0)
    """Seconds between an answer without a batch and the next request."""

    @property
    def first_port(self) -> int | None:
        return self.port

    def check(self, context: int) -> None:
        """Raise `ConfigError` unless the environments' sequences fit the model's context."""
        if self.seq_len > context:
            raise ConfigError(
                f"rollout.source_options.seq_len = {self.seq_len}, and the context is {context} "
                "tokens (the smaller of model.max_model_len and the model's own limit); lower "
                "seq_len (--seq-len), or raise the smaller of the two"
            )
