"""The Python of docs/python.md runs as it stands there, with a local model and dataset.

`MORTAL_PAGES` names further pages whose examples are to run, separated by `:`, each with the
sections that count: `page.md#Quick Start,Reward System`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs_examples import python_blocks
from tests.support.paths import ROOT

PAGES = [str(ROOT / "docs/python.md"), *filter(None, os.environ.get("MORTAL_PAGES", "").split(":"))]
PRELUDE = "from tests.support.local_trainer import *\n" + (
    "from tests.support.local_trainer import LocalTrainer as MortalTrainer\n"
)
LEFT_OUT = re.compile(r",\s*\.\.\.\s*(?=\))")
"""An ellipsis as the last argument of a call: where a page leaves the rest to its reader."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).name)
def test_the_examples_of_a_page_run(page, mortal):
    file, _, sections = page.partition("#")
    headings = tuple(filter(None, sections.split(",")))
    blocks = [LEFT_OUT.sub("", block) for block in python_blocks(Path(file), headings)]
    assert blocks
    (mortal.folder / "page.py").write_text("\n\n".join([PRELUDE, *blocks]))
    finished = subprocess.run(
        [sys.executable, "page.py"],
        cwd=mortal.folder,
        env={**mortal.env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    trained = [line for line in finished.stdout.splitlines() if "running on this machine" in line]
    assert len(trained) == sum(block.count(".train()") for block in blocks)
