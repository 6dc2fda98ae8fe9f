"""The flow's own loop without Prefect, and the real workers in this process: a run in seconds."""

import asyncio
import contextlib
import importlib

import pytest
import torch

from mortal_steps.data.prepared import Prepared
from mortal_steps.data.problems import load_problems
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.report.recorder import Recorder
from mortal_steps.system.scratch import Scratch
from tests.support import bare
from tests.support.project import write_project


class Killed(BaseException):
    """Ends a run as a kill would: nothing is noted of it."""


class InProcess:
    """`Compute` with one worker of each role, here."""

    def __init__(self, specs, **options):
        self._specs = specs
        self._workers = {}

    async def call(self, role, method, *, key, worker=None, **payload):
        if role not in self._workers:
            module, _, name = self._specs[role].factory.partition(":")
            factory = getattr(importlib.import_module(module), name)
            self._workers[role] = factory(**self._specs[role].kwargs)
        return getattr(self._workers[role], method)(**payload)

    async def start(self, role):
        pass

    def ready_workers(self, role):
        return [0]

    def spent(self):
        return 0.0

    async def close(self):
        self._workers.clear()


@contextlib.contextmanager
def one_thread():
    """Torch on one thread, as in a worker of its own; yields a patch for the time of the block."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@contextlib.contextmanager
def bare_in(folder):
    """`one_thread` in the folder; no process checks what a new run needs."""
    with one_thread() as patch:
        patch.chdir(folder)
        patch.setattr(preflight, "check", unchecked)
        yield patch


def project_config(folder, **training):
    """Return the e2e tests' project in `folder`, set up for six quick steps."""
    path = write_project(folder)
    overrides = {
        "training.max_steps": 6,
        "checkpoints.save_steps": 2,
        "evaluation.eval_steps": 2,
        "rollout.num_shards": 2,
        **training,
    }
    config = load_config(path, [f"{key}={value}" for key, value in overrides.items()])
    return config.model_copy(update={"run_id": "run"})


def unchecked(config, known=None, say=None, **others):
    """In place of `preflight.check`: the problems alone, and the rows of a run that learns from
    them; no process looks at the rest."""
    if known and (known.prepared or not config.algorithm.judges_by_loss):
        return known
    train, held_out = (known or load(config))[:2]
    if not config.algorithm.judges_by_loss:
        return preflight.Problems(train, held_out)
    scratch = Scratch()
    came = config.algorithm.prepare(Plan(config).trainer, train, held_out, folder=scratch.path)
    rows = Prepared(folder=scratch.path, num_rows=came.num_rows, scratch=scratch)
    return preflight.Problems(train, held_out, rows)


def load(config):
    return load_problems(config.data, config.seed, num_made=config.num_made_rows)


def go_on(config, *, killed_after=None, recorder=Recorder):
    """Drive the run to its end, or kill it once that step is taken but not yet noted."""

    class DyingRecorder(recorder):
        def step(self, problems, batch, result):
            if result.step == killed_after:
                raise Killed
            return super().step(problems, batch, result)

    async def drive(run):
        async with driver.open_session(run, local=InProcess) as open_session:
            await bare.train(open_session, DyingRecorder(run))

    run = open_run(config)
    if not run.is_complete():
        asyncio.run(drive(run))
    return run
