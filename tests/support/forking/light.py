"""Be the light holder: `python -m tests.support.forking.light ORDERS`."""

import gc
import socket
import sys

from mortal_steps.system.imports import imports_without_gc
from tests.support.forking.held import hold
from tests.support.forking.interpreter import forget_pytest

with imports_without_gc():
    import openai.resources  # noqa: F401
    from transformers.utils import get_json_schema  # noqa: F401 - how tools are described

    import mortal.rewards  # noqa: F401
    from mortal_steps.environments.inside import agents, handler  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    forget_pytest()
    hold(socket.socket(fileno=int(sys.argv[1])))
