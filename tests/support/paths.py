"""Where the checkout is, and the interpreter of vLLM."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

VLLM_PYTHON = Path(os.environ.get("MORTAL_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
"""The interpreter that has vLLM; `make vllm-env` builds one."""
