"""The flow's own loop without Prefect, so that the two cannot drift apart."""

from __future__ import annotations

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.orchestration.batch_sources.base import batch_source
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.orchestration.session import Session
from mortal_steps.report.recorder import Recorder


async def train(
    session: Session, recorder: Recorder | None = None, stop: Stop | None = None
) -> None:
    """Drive a run from the step where it stands to its last, every stage a plain function."""
    source = batch_source(session.run.config.rollout.source)
    recorder = recorder or Recorder(session.run)
    stop = stop or Stop()
    await Training(session, source, Reporter(), stop, recorder).run()
