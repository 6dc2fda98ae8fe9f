"""Rows of a reasoning_gym task, made here."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from mortal_steps.data.sources.base import Row, SourceRequest
from mortal_steps.errors import DataError


def read_task(request: SourceRequest) -> Iterator[Row]:
    """Yield the task's entries; held-out ones are those that follow the training rows' seeds."""
    task, options = request.task, request.options
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "reasoning_gym":
            raise
        raise DataError(
            f"{request.origin}: reasoning_gym is not installed here; "
            "`pip install 'reasoning-gym==0.1.25'` installs the version that MORTAL is tested with"
        ) from None
    if task not in DATASETS:
        near = difflib.get_close_matches(task, DATASETS, n=3)
        raise DataError(
            f"{request.origin}: reasoning_gym has no task {task!r}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(DATASETS)}")
        )
    parameters = {"seed": request.seed, **options}
    try:
        dataset = reasoning_gym.create_dataset(task, **parameters)
        if request.held_out:
            # Entry i draws from seed + i, so these seeds are none of the training rows'.
            parameters["seed"] += len(dataset)
            dataset = reasoning_gym.create_dataset(task, **parameters)
        for entry in dataset:
            yield _gym_row(task, options, entry)
    except Exception as error:
        raise DataError(
            f"data.options = {dict(options)}: reasoning_gym refuses them for {task}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _gym_row(task: str, options: Mapping[str, Any], entry: Row) -> Row:
    """`task_options` and `entry` are what the verifier needs; the latter is a Python literal, as
    some tell tuples from lists."""
    return {
        "prompt": entry["question"],
        "answer": entry["answer"],
        "metadata": entry["metadata"],
        "source_dataset": task,
        "task_options": {key: options[key] for key in options if key not in ("size", "seed")},
        "entry": repr(_plain(entry)),
    }


def _plain(value: Any) -> Any:
    """Return built-in values only, NumPy's being unreadable in a literal."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_plain(item) for item in value)
    return value.tolist() if hasattr(value, "tolist") else value
