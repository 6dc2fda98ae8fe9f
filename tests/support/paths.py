"""Where the checkout is, and other interpreters."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

VLLM_PYTHON = Path(os.environ.get("MORTAL_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
"""The interpreter that has vLLM; `make vllm-env` builds one."""

ENVIRONMENTS_PYTHON = Path(
    os.environ.get("MORTAL_ENVIRONMENTS_PYTHON", ROOT / ".venv-environments/bin/python")
)
"""The interpreter that has environments by others; `make environments-env` builds one."""
