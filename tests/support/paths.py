"""Where the checkout is, and the interpreters of vLLM and of Atropos."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

VLLM_PYTHON = Path(os.environ.get("MORTAL_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
"""The interpreter that has vLLM; `make vllm-env` builds one."""
ATROPOS_PYTHON = Path(os.environ.get("MORTAL_ATROPOS_PYTHON", ROOT / ".venv-atropos/bin/python"))
"""The interpreter that has atroposlib; `make atropos-env` builds one."""
