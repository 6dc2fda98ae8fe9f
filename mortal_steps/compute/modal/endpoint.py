"""The endpoint of a run's model on Modal: class `Endpoint` of the app, reached over the web."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

import modal

from mortal_steps.compute.modal.retry import call_with_retries
from mortal_steps.errors import ComputeError

CLASS = "Endpoint"
NEWEST = -1
"""What its parameter `step` is where none is named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebEndpoint:
    """Where an OpenAI client finds a run's model."""

    url: str
    """Base URL."""
    query: dict[str, str]
    """What goes with every request: it chooses the container."""

    def of(self, path: str) -> str:
        """Full address of a path below the base URL."""
        return f"{self.url}{path}?{urlencode(self.query)}"


async def find_endpoint(app: str, run_id: str, step: int | None) -> WebEndpoint:
    """The endpoint of a run's model; starts no container. Raises `ComputeError`."""
    deployed = modal.Cls.from_name(app, CLASS)
    number = NEWEST if step is None else step
    try:
        method = deployed(run_id=run_id, step=number).serve
        url = await call_with_retries(app, lambda: method.get_web_url.aio())
    except modal.exception.NotFoundError as error:
        raise ComputeError(f"app {app} has no {CLASS}: {error}; call `mortal deploy`") from error
    if not url:
        raise ComputeError(f"Modal names no address of {CLASS} in app {app}; call `mortal deploy`")
    query = {"run_id": run_id, "step": str(number)}
    return WebEndpoint(url=f"{url.rstrip('/')}/v1", query=query)
