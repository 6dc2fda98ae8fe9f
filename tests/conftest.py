"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LONG = ("tests/integration/modal/", "tests/e2e/test_recovery.py", "tests/e2e/")
"""What takes longest begins first, so that pytest's processes end at about the same time."""


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )


def pytest_collection():
    """Collecting imports millions of objects that stay: no search for garbage among them."""
    gc.disable()


def pytest_collection_finish():
    """Nor later: TRL collects all garbage whenever a trainer begins, which took a third of a
    second."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """The order, which `--dist loadfile --no-loadscope-reorder` keeps."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(nodeid):
    return next((i for i, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))
