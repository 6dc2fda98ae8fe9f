"""Every test and what it starts is offline, also where pytest is called without `make`.

huggingface_hub reads this once, when it is imported; transformers writes it into saved tokenizers.
"""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VLLM_PYTHON = Path(
    os.environ.get("MORTAL_VLLM_PYTHON", Path(__file__).parents[1] / ".venv-vllm/bin/python")
)
"""The interpreter that has vLLM; `make vllm-env` builds one."""


def pytest_addoption(parser):
    parser.addoption(
        "--parity-seed", type=int, default=0, help="draws the configurations of test_drawn_parity"
    )
