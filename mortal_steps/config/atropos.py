"""`[rollout.source_options]` of the batch source `atropos`."""

from typing import Annotated, Any

from pydantic import Field, ValidationError

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.section import Section


class AtroposOptions(Section):
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


def atropos_options(given: dict[str, Any]) -> AtroposOptions:
    """Return the options of the source; raise `ValueError` for those that it does not take."""
    try:
        return AtroposOptions.model_validate(given)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(["rollout", "source_options", *map(str, wrong["loc"])])
        raise ValueError(f"{key} = {wrong['input']!r}: {wrong['msg']}") from None
