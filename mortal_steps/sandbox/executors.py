"""Where programs run: on this machine, or in a service. A process has one executor.

To add one, write one class and one line in `EXECUTORS`.
"""

import contextlib
import logging
import platform
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from mortal_steps.errors import ConfigError, NoIsolationError
from mortal_steps.extensions import Registry, simple
from mortal_steps.sandbox.box import Way
from mortal_steps.sandbox.lane import Lane
from mortal_steps.sandbox.levels import way_to_run
from mortal_steps.sandbox.pool import Pool
from mortal_steps.system.resources import num_cores

logger = logging.getLogger(__name__)

EXECUTORS = Registry(
    "rewards.sandbox.place",
    simple(
        {
            "local": "mortal_steps.sandbox.executors:LocalExecutor",
            "modal": "mortal_steps.places.modal.sandboxes:ModalExecutor",
        }
    ),
)
"""`rewards.sandbox.place` -> its class, which is constructed with `ExecutorSettings`."""
NOWHERE = "mortal_steps.sandbox.executors:NoExecutor"
"""Kind of the executor of environments that are in a Modal Sandbox themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorSettings:
    """Where programs run. The process that scores receives these settings."""

    kind: str = "local"
    """A key of `EXECUTORS`."""
    lanes: int | None = None
    """Number of programs that one process runs at the same time; None: the executor decides."""
    allow_unisolated: bool = False
    """Whether programs may run if they cannot be isolated."""
    patience_s: float = 48.0
    """Seconds that a remote service may take to start, restarts included, for one program."""
    app: str = "mortal"
    """Name of the app on Modal."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for a remote service's client; reward functions see none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What the programs of one reward environment need."""

    who: str
    """Name of the reward environment, for messages."""
    image: Any = None
    """A `modal.Image`."""
    memory_mb: int = 1024
    """MiB that a program may use."""
    allow_unisolated: bool = False
    """See `ExecutorSettings`. It is allowed if either of the two allows it."""


class Executor:
    """Somewhere programs can run; constructed with `ExecutorSettings`. Derive from it: define
    `pool`."""

    def prepare(self, needs: Needs) -> None:
        """Do now what takes long the first time, such as building an image."""

    def prepare_forks(self) -> None:
        """Do now what each fork of this process would do. Called for what runs here alone: a client
        of a service does not survive a fork."""

    def pool(self, needs: Needs) -> Pool[Any]:
        """Return lanes that meet the needs, the same for equal needs. Raises a `MortalError` that
        says why programs cannot run here."""
        raise NotImplementedError

    def close(self) -> None:
        """End all lanes that would outlive this process. No program is running any more."""


class LocalExecutor(Executor):
    """This machine, in bubblewrap boxes. Its lanes end with this process. It ignores images."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._making = threading.Lock()
        # Decided once, since trying whether programs can be isolated takes half a second.
        self._way_to_run = cache(way_to_run)
        self._pool_of = cache(lambda way: local_pool(way, settings.lanes))
        self._warn_of_image = cache(_warn_of_image)

    def prepare_forks(self) -> None:
        with contextlib.suppress(NoIsolationError):  # for the first program to say
            self._way_to_run(allow_unisolated=self._settings.allow_unisolated)

    def pool(self, needs: Needs) -> Pool[Lane]:
        allowed = needs.allow_unisolated or self._settings.allow_unisolated
        with self._making:
            way = self._way_to_run(allow_unisolated=allowed)
            if needs.image is not None:
                self._warn_of_image(needs.who)
            return self._pool_of(way)


class NoExecutor(Executor):
    """Refuses all programs."""

    def __init__(self, settings: ExecutorSettings) -> None:
        pass

    def pool(self, needs: Needs) -> Pool[Any]:
        raise ConfigError(
            f"{needs.who}: an environment in a Modal Sandbox ([compute.modal.environment]) cannot "
            "run programs in sandboxes of their own; score them in [rewards], or leave the table "
            "out, which has environments in the rollout workers' containers"
        )


def local_pool(way: Way, num_lanes: int | None = None) -> Pool[Lane]:
    """Return lanes on this machine, by default one per core."""
    return Pool(partial(Lane, way), num_lanes or num_cores())


def _warn_of_image(who: str) -> None:
    logger.warning(
        "%s: sandbox_config.image applies to Modal only; on this machine, programs run in "
        "Python %s with the packages of this process",
        who,
        platform.python_version(),
    )


_settings = ExecutorSettings()
_executor: Executor | None = None
_making = threading.Lock()


def use_settings(settings: ExecutorSettings) -> None:
    """Set where programs of this process run from now on."""
    global _settings
    close()
    _settings = settings


def executor() -> Executor:
    """Return where programs of this process run; all reward environments share it. Raises
    `ConfigError` for one that cannot be imported."""
    global _executor
    with _making:
        if _executor is None:
            make: Callable[[ExecutorSettings], Executor] = EXECUTORS.load(_settings.kind)
            _executor = make(_settings)
        return _executor


def prepare_forks() -> None:
    """Before this process is forked: do what each fork would do, see `Executor.prepare_forks`."""
    if _settings.kind == "local":
        executor().prepare_forks()


def close() -> None:
    """End what was started for programs of this process."""
    global _executor
    with _making:
        ended, _executor = _executor, None
    if ended is not None:
        ended.close()
