"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )
