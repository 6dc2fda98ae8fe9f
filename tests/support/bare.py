"""The flow's own loop without Prefect, so that the two cannot drift apart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from prefect import Task

import mortal_flows.grpo_train as grpo
from mortal_flows import rollouts
from mortal_flows.stop import Stop
from mortal_steps.orchestration.session import Session
from mortal_steps.report.timings import StageTotals


async def train(session: Session) -> None:
    """Drive a run from the step where it stands to its last; `strip_prefect` first."""
    await grpo.Training(session, Stop(), _NoServer()).run()  # type: ignore[arg-type]


def strip_prefect(replace: Callable[[object, str, Any], None] = setattr) -> None:
    """Let every task of the flow be the function it wraps."""
    for module in (grpo, rollouts):
        for name, value in list(vars(module).items()):
            if isinstance(value, Task):
                replace(module, name, value.fn)
        replace(module, "opaque", lambda value: value)
    replace(rollouts, "committed", _call)
    replace(grpo, "RunArtifacts", _NoArtifacts)
    replace(grpo, "get_run_logger", logging.getLogger)


async def _call(function: Any, session: Session, **inputs: Any) -> Any:
    return await function(session=session, **inputs)


class _NoArtifacts:
    """Artifacts are Prefect's; the bare loop has none."""

    def __init__(self, *_: Any) -> None:
        pass

    async def refresh(self, totals: StageTotals) -> None:
        pass


class _NoServer:
    """Never away."""

    away = False

    async def ready(self) -> None:
        pass
