"""What libraries have read of an environment, and set in it, when they were imported."""

import contextlib
import fnmatch
import os

import pytest

from mortal_steps.system.rounding import decides_rounding

READ_BY_IMPORTS = ("HF_*", "TRANSFORMERS_*", "TORCH_*", "CUDA_*", "PYTHONPATH")
QUIET = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS")
"""Workers have them, and so has whoever has imported what they need."""


def of_imports(environment):
    """What libraries have read of an environment when they are imported."""
    return {name: environment[name] for name in environment if is_read(name) and name not in QUIET}


def is_read(name):
    return decides_rounding(name) or any(fnmatch.fnmatch(name, one) for one in READ_BY_IMPORTS)


PRELOADED_WITH = of_imports(os.environ)
SET_BY_IMPORTS: dict[str, str] = {}
"""Variables that libraries have set when they were imported."""


@contextlib.contextmanager
def as_at_first():
    """For the time of the block, libraries read what they did when this process imported its own,
    whatever a test has set since."""
    with pytest.MonkeyPatch.context() as patch:
        for name in of_imports(os.environ).keys() - PRELOADED_WITH.keys():
            patch.delenv(name)
        for name, value in PRELOADED_WITH.items():
            patch.setenv(name, value)
        yield
