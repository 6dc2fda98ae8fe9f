"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOGETHER = {"tests/e2e/own_server/": None, "tests/e2e/": "e2e", "tests/integration/modal/": "modal"}
"""Folders whose tests share a server, which one of pytest's processes starts; they come first,
since they take longest. None: each file has servers of its own."""


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )


def pytest_collection_modifyitems(items):
    """For `--dist loadgroup`: tests of a file stay together, for the fixtures that they share."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(_folder_group(file) or file))
    items.sort(key=lambda item: _folder_group(item.nodeid) is None)


def _folder_group(nodeid):
    return next((group for folder, group in TOGETHER.items() if nodeid.startswith(folder)), None)
