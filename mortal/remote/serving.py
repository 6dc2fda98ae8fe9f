"""`mortal serve --modal`: where a run's model is served on Modal."""

from __future__ import annotations

import asyncio

from mortal.terminal.output import say
from mortal_steps.compute.modal.endpoint import find_endpoint
from mortal_steps.config import ModalConfig


def show_endpoint(run_id: str, step: int | None) -> None:
    """Print the URL, and how a client uses it; the first request starts the container.

    Raises `ComputeError` if the app has no endpoint.
    """
    found = asyncio.run(find_endpoint(ModalConfig().app, run_id, step))
    say(f"{run_id} is served at {found.url}  (from the first request on; it goes when it is idle)")
    say(
        "each request needs a proxy auth token of your workspace (Modal's settings make one) and "
        f"the query {found.query}"
    )
    say(
        f"curl '{found.of('/models')}' -H \"Modal-Key: $MODAL_PROXY_KEY\" "
        '-H "Modal-Secret: $MODAL_PROXY_SECRET"'
    )
