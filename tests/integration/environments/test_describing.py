import subprocess
import sys
from pathlib import Path

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import EpisodeStart, Opened, ToolAnswer, ToolCall
from mortal_steps.environments.processes.host import described, environment_host
from tests.support.environments.describing import describe_once

DESCRIBED = """
import sys
from mortal_steps.environments.inside.loading import schemas

def add(amount: int, what: str | None = None) -> str:
    '''Add an amount.

    Args:
        amount: How much.
        what: Of what.
    '''

(schema,) = schemas([add])
print(schema["function"]["parameters"]["properties"]["amount"]["type"], "torch" in sys.modules)
"""


def test_tools_are_described_without_torch():
    command = [sys.executable, "-c", DESCRIBED]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["integer", "False"]


def test_no_process_is_left_behind(tmp_path):
    (tmp_path / "tool.py").write_text(TOOL)
    before = children()
    found = describe_once(EnvironmentConfig(tools=(f"{tmp_path}/tool.py:imports",)))
    assert found.environments[""].tools
    assert children() <= before


def children():
    """The processes that this one has started."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


TOOL = """
import sys

def imports(module: str) -> str:
    '''Say whether a module is there.

    Args:
        module: Its name.
    '''
    return str(module in sys.modules)
"""


def test_what_describes_the_tools_is_not_in_the_process_that_is_forked(tmp_path):
    (tmp_path / "tool.py").write_text(TOOL)
    host = environment_host(EnvironmentConfig(tools=(f"{tmp_path}/tool.py:imports",)), {})
    try:
        assert described(host).environments[""].tools[0]["function"]["name"] == "imports"
        fork = host.fork()
        start = EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1)
        fork.call("open", returns=Opened, timeout_s=60.0, start=start)
        calls = [
            ToolCall(name="imports", arguments={"module": name}, call_id=f"a/0/{name}")
            for name in ("numpy", "transformers")
        ]
        answers = fork.call(
            "call", returns=list[ToolAnswer], timeout_s=60.0, episode=0, calls=calls
        )
        fork.close()
    finally:
        host.close()
    assert [each.content for each in answers] == ["True", "False"]
