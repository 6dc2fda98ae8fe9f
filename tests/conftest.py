"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import os
import signal

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from mortal_steps.system.imports import imports_without_gc
from mortal_steps.system.rounding import rounding_environment
from tests.support.paths import CERTIFICATE

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# A client of HTTP reads all that it trusts when it begins: hundreds, for servers that nobody asks.
os.environ.setdefault("SSL_CERT_FILE", str(CERTIFICATE))
for _name in rounding_environment():
    del os.environ[_name]  # whatever this machine sets; a test that needs one sets it

TOGETHER = ("tests/e2e/", "tests/integration/modal/")
"""The files of such a folder run in one process: they share a Prefect server, or a Modal app, which
take some 20 s of a core to start. They wait more than they compute."""

WITH_VLLM = (
    "tests/integration/rollout/test_planted_faults.py",
    "tests/integration/rollout/test_vllm_engine.py",
    "tests/integration/rewards/test_vllm_teacher.py",
    "tests/integration/policy/test_sampling_type.py",
)
"""These run in one process, too: they share one that has imported vLLM."""

LONG = (
    *TOGETHER,
    *WITH_VLLM,
    "tests/integration/test_atropos_run.py",
    "tests/integration/environments/test_killed_episodes.py",
    "tests/integration/runs/test_corruption.py",
    "tests/integration/test_extending.py",
    "tests/integration/policy/",
)
"""What takes longest begins first, so that pytest's processes end at about the same time."""


hypothesis.settings.register_profile("mortal", deadline=None)  # a busy machine fails no test
hypothesis.settings.load_profile("mortal")

# A shell starts background jobs with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )


@pytest.fixture(autouse=True)
def _no_server_of_another_test():
    # Not above, where the environment is not yet what tests begin with.
    from tests.support.prefect_settings import kept_settings

    with kept_settings():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collecting imports millions of objects that stay: no search for garbage among them, neither
    now nor later. TRL collects all garbage whenever a trainer begins."""
    with imports_without_gc():
        return (yield)


def pytest_collection_modifyitems(items):
    """The order, which `--dist loadfile --no-loadscope-reorder` keeps."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(nodeid):
    return next((i for i, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))


class ByFileOrFolder(LoadFileScheduling):
    """A file at a time, or all that belongs together."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        if file in WITH_VLLM:
            return "vLLM"
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def pytest_xdist_setupnodes():
    from tests.support.forking.workers import fork_workers

    fork_workers()


def pytest_xdist_make_scheduler(config, log):
    """For `--dist loadfile`."""
    return ByFileOrFolder(config, log) if config.option.dist == "loadfile" else None
