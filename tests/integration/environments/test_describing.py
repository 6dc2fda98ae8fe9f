import subprocess
import sys

DESCRIBED = """
import sys
from mortal_steps.environments.loading import schemas

def add(amount: int, what: str | None = None) -> str:
    '''Add an amount.

    Args:
        amount: How much.
        what: Of what.
    '''

(schema,) = schemas([add])
print(schema["function"]["parameters"]["properties"]["amount"]["type"], "torch" in sys.modules)
"""


def test_tools_are_described_without_torch_of_which_each_cell_would_be_a_fork():
    command = [sys.executable, "-c", DESCRIBED]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["integer", "False"]
