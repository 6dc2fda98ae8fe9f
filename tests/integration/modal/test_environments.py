"""Environments in Modal Sandboxes: what runs beside them, what is lost, what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import modal
import pytest

from mortal_steps.config import EnvironmentConfig, ModalConfig
from mortal_steps.environments.kinds.openenv import OpenEnvEnvironment
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.errors import ComputeError, ConfigError
from mortal_steps.places.modal import CLIENT_PATH
from tests.support.environments import openenv_server
from tests.support.environments.describing import describe_once

KEY, PORT = "train-0", 28471
PROMPT = [{"role": "user", "content": "Play. "}]
TOOLS = """
import os
from mortal.rewards.examples import LLMJudgeEnvironment


def where(name: str) -> str:
    \"\"\"Say where this is.

    Args:
        name: Any.
    \"\"\"
    return os.environ.get(name, "nowhere")
"""
JUDGE = "judge = LLMJudgeEnvironment('gpt-4o-mini')\n"


@pytest.fixture
def project(plane, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def away(**options):
    return ModalConfig(environment=options)


def running(plane):
    ended = {each["sandbox"] for each in plane.events("sandbox_ended")}
    began = [each["sandbox"] for each in plane.events("sandbox_started")]
    return [each for each in began if each not in ended]


def ask(cells, text):
    call = ToolCall(name="_reply", arguments={"text": text}, call_id=text, is_reply=True)
    return cells.call({(KEY, 0): [call]})[KEY, 0][0].content


def test_a_server_of_openenv_runs_beside_its_episodes_and_is_lost_and_replaced_with_them(
    plane, project
):
    source = Path(openenv_server.__file__).read_text()
    server = ["python3", "-c", source, str(PORT), "8", "0"]
    environment = OpenEnvEnvironment(
        url=f"http://127.0.0.1:{PORT}", action="message", observation="text", timeout_s=20.0
    )
    options = away(image="registry.example.com/talk:1", server=server, packages=["talk==1"])
    host = environment_host(environment, {}, modal=options)
    cells = Cells(host, environment)
    row = {"prompt": PROMPT, "name": "Ada"}
    start = EpisodeStart(environment="", prompt=PROMPT, row=row, reset_seed=5, seed=0)
    try:
        (opened,) = cells.open({KEY: [start]})[KEY]
        number = opened.prompt[-1]["content"].split()[2].rstrip(",")
        assert ask(cells, "hello") == "not hello"
        (sandbox,) = running(plane)
        modal.Sandbox.from_id(sandbox).terminate()
        assert ask(cells, number) is None
        assert running(plane) and sandbox not in running(plane)
    finally:
        cells.close()
        host.close()
    assert not running(plane)
    lines = [line for image in plane.state()["images"].values() for line in image["lines"]]
    assert "FROM registry.example.com/talk:1" in lines
    assert any("websockets" in line and "talk==1" in line for line in lines)


def test_an_image_whose_server_ends_is_refused_with_its_last_words(project):
    (project / "tools.py").write_text(TOOLS)
    with pytest.raises(ConfigError, match="no such talk"):
        describe_once(
            EnvironmentConfig(tools=("tools.py:where",)),
            modal=away(server=["python3", "-c", "import sys; sys.exit('no such talk')"]),
        )


def test_a_judge_is_refused_in_tools_there(project, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (project / "tools.py").write_text(TOOLS + JUDGE)
    environment = EnvironmentConfig(tools=("tools.py:where",))
    assert describe_once(environment).environments[""].tools
    with pytest.raises(ConfigError, match=r"cannot ask a judge.*\[rewards\]"):
        describe_once(environment, modal=away())


def test_code_from_elsewhere_is_refused(project):
    (project / "below").mkdir()
    (project / "tools.py").write_text(TOOLS)
    os.chdir(project / "below")
    with pytest.raises(ConfigError, match="containers get what is below the current folder"):
        describe_once(EnvironmentConfig(tools=("../tools.py:where",)), modal=away())


def test_what_modal_does_not_have_is_refused_with_what_to_do(project):
    (project / "tools.py").write_text(TOOLS)
    options = ModalConfig(environment={}, secrets=("missing",))
    with pytest.raises(ComputeError, match=r"Modal refuses: .*missing"):
        describe_once(EnvironmentConfig(tools=("tools.py:where",)), modal=options)


def test_a_process_in_a_container_finds_what_the_first_one_has(tmp_path):
    (tmp_path / "client_of_modal.py").touch()
    code = "import mortal_steps.places.modal, client_of_modal"
    env = {**os.environ, CLIENT_PATH: os.pathsep.join(["", str(tmp_path)])}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0
