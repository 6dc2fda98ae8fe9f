"""Tests fork workers where they would have been interpreters, and notice when they no longer do."""

import os

from mortal.driver import QUIET_PREFECT
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.forkserver import OF_THE_SERVER
from mortal_steps.compute.local_container import worker_environment
from tests.support.forking.environment import PRELOADED_WITH, of_imports


def test_what_a_driver_and_its_workers_set_is_nothing_that_imports_read(monkeypatch):
    for name, value in QUIET_PREFECT.items():
        monkeypatch.setenv(name, value)
    worker = worker_environment(WorkerSpec(factory="a:B", kwargs={}), {})
    for environment in (os.environ, worker, {**worker, **OF_THE_SERVER}):
        assert of_imports(environment) == PRELOADED_WITH
