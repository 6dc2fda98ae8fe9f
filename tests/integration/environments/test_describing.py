import os
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

def order() -> str:
    '''Say in which order a set has words.'''
    return " ".join({"one", "two", "three", "four", "five", "six", "seven", "eight"})
"""
ORDER = """
print(*{"one", "two", "three", "four", "five", "six", "seven", "eight"})
"""


def test_a_process_that_is_forked_has_sets_in_one_order_and_nothing_that_describes_tools(
    tmp_path, monkeypatch
):
    (tmp_path / "tool.py").write_text(TOOL)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    tools = tuple(f"{tmp_path}/tool.py:{name}" for name in ("imports", "order"))
    host = environment_host(EnvironmentConfig(tools=tools), {})
    try:
        assert described(host).environments[""].tools[0]["function"]["name"] == "imports"
        fork = host.fork()
        start = EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1)
        fork.call("open", returns=Opened, timeout_s=60.0, start=start)
        calls = [
            ToolCall(name="imports", arguments={"module": name}, call_id=f"a/0/{name}")
            for name in ("numpy", "transformers")
        ]
        calls.append(ToolCall(name="order", arguments={}, call_id="a/0/order"))
        answers = fork.call(
            "call", returns=list[ToolAnswer], timeout_s=60.0, episode=0, calls=calls
        )
        fork.close()
    finally:
        host.close()
    *others, order = [each.content for each in answers]
    assert others == ["True", "False"]
    command, seed = [sys.executable, "-c", ORDER], {**os.environ, "PYTHONHASHSEED": "0"}
    assert order == subprocess.check_output(command, env=seed, text=True).strip()
