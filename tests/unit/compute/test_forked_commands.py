"""Tests fork workers where they would have been interpreters, and notice when they no longer do."""

import os

from mortal.driver import QUIET_PREFECT
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.forkserver import OF_THE_SERVER
from mortal_steps.compute.local_container import worker_environment
from tests.support.forking.environment import PRELOADED_WITH, as_at_first, of_imports
from tests.support.prefect_settings import kept_settings


def test_what_a_driver_and_its_workers_set_is_nothing_that_imports_read(monkeypatch):
    for name, value in QUIET_PREFECT.items():
        monkeypatch.setenv(name, value)
    worker = worker_environment(WorkerSpec(factory="a:B", kwargs={}), {})
    for environment in (os.environ, worker, {**worker, **OF_THE_SERVER}):
        assert of_imports(environment) == PRELOADED_WITH


def test_what_a_test_sets_keeps_no_other_from_being_forked():
    """Whether it sets it back or not, and whoever is the first to need the process that forks."""
    with kept_settings():
        os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"
        os.environ.pop("HF_HUB_OFFLINE")
        with as_at_first():
            assert of_imports(os.environ) == PRELOADED_WITH
        assert of_imports(os.environ) != PRELOADED_WITH
    assert of_imports(os.environ) == PRELOADED_WITH
