"""The inside of a Modal container: a worker of one run, or a node's, one call at a time.

deployments/modal_app.py puts Modal's decorators around it. The Volume holds the run directory: what
others have committed is there once it is reloaded, and what the worker wrote is there for others
once it is committed. So a call begins with the one and ends with the other. Between calls no file
of the Volume is open.

Each worker is a process of its own, as on another machine. On a node, actor and rollout worker
alternate: in one process the settings of the one (threads, deterministic kernels, torch's random
state) would decide the numbers of the other, and vLLM needs an environment of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import mortal_steps
from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.compute.roles import worker_specs
from mortal_steps.errors import ComputeError, StoreError, WorkerLostError
from mortal_steps.places.modal import CLIENT_PATH
from mortal_steps.places.modal.inside.compiled import Compiled, compiled_for
from mortal_steps.places.modal.inside.specs import in_containers
from mortal_steps.places.modal.messages import (
    CallRequest,
    CallResult,
    ContainerTimes,
    Settings,
    check_lease,
    file_refs,
    load_records,
    write_records,
)
from mortal_steps.places.modal.release import (
    other_release,
    other_volume,
    this_release,
)
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.starting_model.base_model import first_model
from mortal_steps.store import RunStore
from mortal_steps.system.faults import as_mortal_error
from mortal_steps.types import FileRef

logger = logging.getLogger(__name__)

FILES_OPEN = "open files"
"""In what Modal says where it refuses to reload for them."""
FILES_OPEN_S = 300.0
"""How long a worker may take to write what it has begun, before a call ends in an error."""
LOOK_EVERY_S = 0.1
CLOSE_GRACE_S = 20.0
"""Seconds that a worker may take to end, and to end Modal's sandboxes that it uses."""

PROJECT = "project"
"""Folder of a run directory on the Volume with the files of the user's own that workers import."""


class Volume(Protocol):
    """Of a Modal Volume, what a container that mounts it uses."""

    def reload(self) -> None:
        """Let the mount show what others have committed."""
        ...

    def commit(self) -> None:
        """Let others see what was written here."""
        ...


class Workers:
    """A process for each role, started at its first call."""

    def __init__(self, specs: Mapping[Role, WorkerSpec]) -> None:
        self._runner = asyncio.Runner()
        self._containers = {
            role: LocalContainer(role, spec, 0, Path.cwd(), None) for role, spec in specs.items()
        }

    def call(self, role: Role, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Return the method's result; raise what it raises, and `WorkerLostError` for a lost
        process. None works on where the container is taken away."""
        try:
            return self._runner.run(self._containers[role].call(method, payload, label))
        except Exception:
            raise
        except BaseException:
            self._end_processes(grace_s=0.0)
            raise

    def has_ended(self, role: Role) -> bool:
        """Return whether the role's process has ended, or never began."""
        return self._containers[role].process is None

    def close(self) -> None:
        self._end_processes(CLOSE_GRACE_S)
        self._runner.close()

    def _end_processes(self, grace_s: float) -> None:
        async def end() -> None:
            await asyncio.gather(*(one.close(grace_s) for one in self._containers.values()))

        self._runner.run(end())


class WorkerHost:
    """Constructs the workers of a run that this container is asked for, and calls them. `runs_dir`
    is where the Volume is, HF_HOME where the one is that all runs share, `hub`."""

    def __init__(
        self,
        *,
        runs_dir: Path,
        run_id: str,
        volume: Volume,
        volume_name: str,
        hub: Volume | None = None,
    ) -> None:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        os.chdir(tempfile.mkdtemp())  # a Volume in use as a working directory cannot be reloaded
        # For the processes that a worker starts: the entrypoint finds this code in its own way.
        os.environ["PYTHONPATH"] = str(Path(mortal_steps.__file__).parents[1])
        os.environ[CLIENT_PATH] = os.pathsep.join(sys.path)
        self._runs_dir = runs_dir
        self._run_id = run_id
        self._volume = volume
        self._volume_name = volume_name
        self._hub = hub
        self._compiled: Compiled | None = None
        self._is_node = False
        self._release = this_release()
        self._free_since = time.time()
        self._startup_s = time.time() - _process_start()
        self._workers: Workers | None = None
        self._settings: FileRef | None = None

    def call(self, request: CallRequest) -> CallResult:
        """Carry the request out. What the worker wrote is committed, whether it failed or not."""
        began = time.time()
        self._reload()
        logger.info("%s begins", request.label)
        try:
            result = self._carry_out(request)
        except BaseException:  # taken away, it leaves what it has committed to the store
            self._commit()
            raise
        result = self._commit() or result
        logger.info("%s %s", request.label, "ends" if result.error is None else "fails")
        return replace(result, times=self._account(began))

    def close(self) -> None:
        self._dismiss()

    def _account(self, began: float) -> ContainerTimes:
        ended = time.time()
        times = ContainerTimes(
            container=os.environ.get("MODAL_TASK_ID", ""),
            startup_s=self._startup_s,
            idle_s=began - self._free_since,
            busy_s=ended - began,
        )
        self._startup_s, self._free_since = 0.0, ended
        return times

    def _carry_out(self, request: CallRequest) -> CallResult:
        try:
            if self._volume_name != request.volume:
                raise ComputeError(other_volume(self._volume_name, request.volume))
            store = self._store()
            check_lease(store, request.lease)
            if not self._release.runs_with(request.release):
                raise ComputeError(other_release(self._release, request.release))
            write_records(store, request.files)
            workers = self._workers_for(request)
            value = workers.call(request.role, request.method, request.payload, request.label)
            if request.role == "rollout":
                self._keep_compiled()
            made = [ref for ref in file_refs(value) if ref not in request.files]
            return CallResult(value=value, files=load_records(store, made))
        except Exception as error:  # the boundary: any error travels to the caller
            logger.error("call failed", exc_info=error)
            lost = isinstance(error, WorkerLostError) and not self._is_node
            if lost and self._workers is not None and self._workers.has_ended(request.role):
                # Another container has another GPU, which may be well.
                self._commit()
                os._exit(1)
            return CallResult(error=as_mortal_error(error))

    def _commit(self) -> CallResult | None:
        try:
            self._volume.commit()
        except Exception as error:  # the boundary: any error travels to the caller
            logger.error("nothing is committed", exc_info=error)
            return CallResult(error=no_more_data(error))
        return None

    def _keep_compiled(self) -> None:
        """Share what the engine has compiled, which has started by now. The run does not need it:
        where the Volume takes no more, the next container compiles anew."""
        if self._hub is None or self._compiled is None:
            return
        try:
            if self._compiled.keep():
                self._hub.commit()
        except Exception as error:
            logger.warning("what vLLM compiled is not kept for other containers", exc_info=error)
        self._compiled = None

    def _store(self) -> RunStore:
        return RunStore(self._runs_dir / self._run_id)

    def _reload(self) -> None:
        """Look at the Volume anew, as soon as nobody here has a file of it open: an actor syncs
        what it has published, and deletes old versions, beside its next calls."""
        until = time.monotonic() + FILES_OPEN_S
        while True:
            try:
                self._volume.reload()
                return
            except (RuntimeError, ProcessLookupError) as error:
                # Modal's client looks for who has it open, and may come across who has ended.
                is_open = isinstance(error, ProcessLookupError) or FILES_OPEN in str(error)
                if not is_open or time.monotonic() > until:
                    raise
            time.sleep(LOOK_EVERY_S)

    def _workers_for(self, request: CallRequest) -> Workers:
        """Return the workers; others where a flow has come back with other settings."""
        if self._workers is None or self._settings != request.settings:
            self._dismiss()
            self._workers = Workers(self._specs(request))
            self._settings = request.settings
        return self._workers

    def _dismiss(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    def _specs(self, request: CallRequest) -> dict[Role, WorkerSpec]:
        store = self._store()
        if (store.root / PROJECT).is_dir():  # the settings may name code that is in it
            shutil.copytree(store.root / PROJECT, Path.cwd(), dirs_exist_ok=True)
        settings = store.read_record(request.settings, Settings)
        teacher = settings.config.algorithm.teacher_model
        linked = {model.name_or_path for model in (settings.config.model, teacher) if model}
        for name, where in settings.folders.items():
            if Path(name).exists():
                continue
            if name in linked:
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).symlink_to(self._runs_dir / where)
            elif request.role == "reward":  # a link would hold files of the Volume open
                shutil.copytree(self._runs_dir / where, name)
        config = settings.config.model_copy(update={"runs_dir": str(self._runs_dir)})
        self._is_node = config.compute.mode == "single_node"
        plans = Plan(config).workers
        if self._hub is not None and (self._is_node or request.role == "rollout"):
            self._compiled = compiled_for(
                plans.rollout.rollout, plans.rollout.model, Path(os.environ["HF_HOME"])
            )
            if self._compiled is not None:
                self._compiled.unpack()
        specs = worker_specs(
            plans,
            run_dir=store.root,
            fingerprint=settings.fingerprint,
            model_path=first_model(store, plans.actor, settings.dataset_fingerprint),
            num_steps=settings.num_steps,
        )
        return in_containers(specs, config.compute)


def _process_start() -> float:
    """When this process began, in seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    booted = time.time() - float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def no_more_data(error: Exception) -> StoreError:
    """Return the error for a Volume that does not take what was written."""
    return StoreError(
        f"the Volume takes no more data: {error}. Nothing half-written counts: remove runs from it "
        "(`modal volume rm`), then continue with `mortal resume`"
    )
