"""What every stage's task has in common: when it is retried and what its result is called.

A cache key names the run directory (by its random uid), the stage, the step, the shard, the policy
version and the digest of what goes in, so a Retry of the flow run and a new flow run for the same
run id find the same result. Keys are file names, in one folder a stage: making folders takes longer
than writing files.
What is cached is a reference; `committed` checks that the store still has the file, whole.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar, cast

from prefect import Task
from prefect.cache_policies import NO_CACHE, CacheKeyFnPolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TagsContext, TaskRunContext
from prefect.logging import get_run_logger
from prefect.utilities.annotations import opaque as taken_whole

from mortal_steps.compute.pool import called
from mortal_steps.errors import CorruptFileError, TransientError
from mortal_steps.orchestration.session import Session
from mortal_steps.system.threads import in_thread
from mortal_steps.types import BatchRef, FileRef, GenerationRef, RewardRef, StageTiming

Reference = TypeVar("Reference", BatchRef, GenerationRef, RewardRef)
T = TypeVar("T")

REPLAYED = "replayed"
"""Tag of a task run whose answer already existed when it was called, for example after a resume."""
RETRIES = 3
RETRY_DELAYS_S = [1.0, 5.0, 15.0]


def shape_of(*kinds: type) -> str:
    """Digest the names of the fields of dataclasses."""
    names = [[kind.__name__, *(field.name for field in fields(kind))] for kind in kinds]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]


SHAPE = shape_of(BatchRef, GenerationRef, RewardRef, FileRef, StageTiming)
"""Digest of the fields of what is cached. A result is a pickle, which leaves newer fields unset;
under another key it is not found, and the worker answers from the store instead."""


def is_transient(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Return whether Prefect retries the task: only after a failure of the infrastructure."""
    return isinstance(state.data, TransientError)


DURABLE: dict[str, Any] = {
    "retries": RETRIES,
    "retry_delay_seconds": RETRY_DELAYS_S,
    "retry_condition_fn": is_transient,
    "cache_result_in_memory": False,
    "cache_policy": NO_CACHE,
}
"""Options of every stage's task. The actor's stages are idempotent by themselves."""


def cached_by(stage: str, identify: Callable[..., str]) -> dict[str, Any]:
    """`DURABLE`, with the result kept under `stage` and under what `identify` makes of the inputs.
    The task run is tagged here, because the function of a task is not called whose result is in the
    cache."""

    def key(context: TaskRunContext, inputs: dict[str, Any]) -> str:
        session: Session = inputs["session"]
        rest = {name: value for name, value in inputs.items() if name != "session"}
        shard = rest.get("shard", 0)
        tag_stage(stage, replayed=session.is_committed(stage, rest["step"], shard))
        return f"{session.run.info.uid}/{stage}-{SHAPE}/{identify(**rest)}"

    cached = {"persist_result": True, "cache_policy": CacheKeyFnPolicy(cache_key_fn=key)}
    return {**DURABLE, **cached}


async def committed(
    task: Task[..., Coroutine[Any, Any, Reference]], session: Session, **inputs: Any
) -> Reference:
    """Return the task's result. If it came from the cache and its file is missing from the store or
    has changed, it is made again."""
    reference: Reference = await task(session=session, **inputs)
    try:
        await in_thread(partial(session.store.check_record, reference.file))
    except CorruptFileError as error:
        get_run_logger().warning("made again: %s", error)
        reference = await task.with_options(refresh_cache=True)(session=session, **inputs)
    return reference


def opaque(value: T) -> T:
    """Wrap `value` as an input of a task so that Prefect does not search its fields for the results
    of other tasks, which takes long. The task is still linked to the one that made it."""
    return cast(T, taken_whole(value))


def tag_stage(name: str, *, replayed: bool = False) -> None:
    """Tag the current task run with its stage and, if so, as replayed."""
    _add_tags(f"stage:{name}", *([REPLAYED] if replayed else []))


def tag_worker(number: int | None = None) -> None:
    """Tag the task run with its worker's number, or that of the one called last."""
    number = called.get() if number is None else number
    if number is not None:
        _add_tags(f"worker:{number}")


@contextlib.contextmanager
def without_tags() -> Iterator[None]:
    """Have the task runs of the block begin without the tags of what is around them: for one that
    begins with tags, Prefect asks for a concurrency slot each, which is slow and needs the
    server."""
    with TagsContext(current_tags=set()):
        yield


def _add_tags(*tags: str) -> None:
    """Tag a running task run, for the UI's filters; see `without_tags`."""
    context = TaskRunContext.get()
    assert context is not None, "a stage's task is called in a task run"
    context.task_run.tags = list(dict.fromkeys([*context.task_run.tags, *tags]))
