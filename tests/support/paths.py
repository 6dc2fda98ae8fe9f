"""Where the checkout is, and other interpreters."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

VLLM_PYTHON = Path(os.environ.get("MORTAL_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
"""The interpreter that has vLLM; `make vllm-env` builds one."""
ATROPOS_PYTHON = Path(os.environ.get("MORTAL_ATROPOS_PYTHON", ROOT / ".venv-atropos/bin/python"))
"""The interpreter that has atroposlib; `make atropos-env` builds one."""

ENVIRONMENTS_PYTHON = Path(
    os.environ.get("MORTAL_ENVIRONMENTS_PYTHON", ROOT / ".venv-environments/bin/python")
)
"""The interpreter that has environments by others; `make environments-env` builds one."""

VERIFIERS = Path(os.environ.get("MORTAL_VERIFIERS", ROOT / ".venv-verifiers"))
VERIFIERS_PYTHONS = {each: VERIFIERS / each / "bin/python" for each in ("v0", "v1")}
"""The interpreters that have verifiers; `make verifiers-env` builds them."""
CERTIFICATE = ROOT / "tests/support/certificate.pem"
"""Of nobody."""
