"""What the images of containers are built from exists: every version, for Linux and their Python.

Asks the package index for metadata alone, by uv, in seconds; nothing is downloaded or installed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mortal_deployments.images import PLATFORM, PYTHON, REQUIREMENTS, TRAINER, VLLM
from tests.support.paths import CERTIFICATE
from tests.support.pins import pinned

UV = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
BUILT_IN_THE_IMAGE = ("cellpylib", "pycosat", "zss")
"""Small packages of reasoning-gym's that come without wheels; the image has a compiler."""
UNREACHABLE = "error sending request|failed to fetch|dns error|network connectivity"


def resolve(*files: Path) -> str:
    """What installing these brings, a line a package; skips where no index can be asked."""
    if UV is None:
        pytest.skip("uv, which resolves requirements, is not installed: `pip install uv`")
    command = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-platform", PLATFORM, "--python-version", f"{PYTHON}.9"]
    command += ["--only-binary", ":all:"]
    for name in BUILT_IN_THE_IMAGE:
        command += ["--no-binary", name]
    known = {name: value for name, value in os.environ.items() if value != str(CERTIFICATE)}
    found = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, env=known)
    if found.returncode and re.search(UNREACHABLE, found.stderr, re.IGNORECASE):
        pytest.skip(f"the package index cannot be asked: {found.stderr.strip()[-200:]}")
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("names", [TRAINER, VLLM], ids=["trainer", "vllm"])
def test_an_image_holds_what_its_requirements_say_and_nothing_else(names):
    files = [REQUIREMENTS / name for name in names]
    said = pinned("\n".join(file.read_text() for file in files))
    assert pinned(resolve(*files)) == said


def test_the_vllm_image_has_what_is_asked_for_it():
    """A newer file of constraints was made from vllm-gpu.txt."""
    asked = resolve(REQUIREMENTS / "vllm-gpu.txt", REQUIREMENTS / VLLM[0])
    assert pinned(asked) == pinned((REQUIREMENTS / VLLM[0]).read_text())
