"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LONG = {
    "tests/integration/modal/": "modal",
    "tests/e2e/test_recovery.py": "recovery",
    "tests/e2e/own_server/": None,
    "tests/e2e/": "e2e",
}
"""What takes longest begins first. The tests of a group share a server, so that one of pytest's
processes has them all; where there is no group, the tests of a file do."""


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )


def pytest_collection_modifyitems(items):
    """The order, and the groups of `--dist loadgroup`."""
    places = {item: _place(item.nodeid) for item in items}
    for item, place in places.items():
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(LONG.get(place) or file))
    order = [*LONG, ""]
    items.sort(key=lambda item: order.index(places[item]))


def _place(nodeid):
    return next((place for place in LONG if nodeid.startswith(place)), "")
