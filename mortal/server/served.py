"""The flows as `mortal schedule` serves them: their processes keep its server alive, too."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from prefect import Flow
from prefect.logging import get_run_logger

from mortal.server.local_server import join_server
from mortal_flows import grpo_resume as resume
from mortal_flows import grpo_train as train


def _served(flow: Flow[..., Any]) -> Flow[..., Any]:
    """The flow, which outlasts `mortal schedule` and its server."""
    served, trains = flow.with_options(), flow.fn

    @functools.wraps(trains)
    async def outlast(*args: Any, **kwargs: Any) -> Any:
        join_server(get_run_logger().warning)
        return await trains(*args, **kwargs)

    # Prefect checks the parameters by it, and looks for the types that it names in this module.
    outlast.__signature__ = inspect.signature(trains, eval_str=True)  # type: ignore[attr-defined]
    served.fn = outlast
    return served


grpo_train = _served(train.grpo_train)
grpo_resume = _served(resume.grpo_resume)
