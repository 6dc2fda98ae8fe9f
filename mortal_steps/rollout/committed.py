"""Whether a shard that was sampled before is what is asked for now."""

import hashlib
import json
import logging
from collections.abc import Sequence

from mortal_steps.schedule import completion_seeds
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, GeneratedShard, GenerateRequest, Problem

logger = logging.getLogger(__name__)


def find_committed(
    store: RunStore, request: GenerateRequest, seed: int
) -> tuple[FileRef, GeneratedShard] | None:
    """Return the committed shard if it is an answer to the request. `seed` is the run's."""
    otherwise = f"sampling {request.output} again"
    found = store.find_whole(request.output, GeneratedShard, otherwise)
    difference = None if found is None else _difference(store, request, found[1], seed)
    if difference is None:
        return found
    logger.warning("%s: %s", otherwise, difference)
    return None


def _difference(
    store: RunStore, request: GenerateRequest, shard: GeneratedShard, seed: int
) -> str | None:
    """Return in words why a committed shard is no answer to the request; None if it is one."""
    if shard.policy_version != request.weights.version:
        return (
            f"it was sampled with version {shard.policy_version}, asked for is "
            f"{request.weights.version}"
        )
    batch = store.read_record(request.problems, list[Problem])
    asked = batch[request.start : request.stop]
    if _digest([group.problem for group in shard.groups]) != _digest(asked):
        ids = ", ".join(problem.id for problem in asked[:3])
        return f"it was sampled for other problems than those asked for ({ids}, ...)"
    sampled = [[made.seed for made in group.completions] for group in shard.groups]
    if sampled != completion_seeds(request, batch, seed):
        return "it was sampled with other seeds, or not as often, as asked for"
    return None


def _digest(problems: Sequence[Problem]) -> str:
    """Return the digest of problems, which is the same once they were written and read."""
    content = [[problem.id, problem.prompt, problem.columns] for problem in problems]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
