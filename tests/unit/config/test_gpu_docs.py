"""docs/gpu.md shows what `mortal train --dry-run` prints."""

import re

import pytest

from tests.support.gpu_setups import SETUPS, shown
from tests.support.gpu_table import rows
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SETUPS)
def test_the_page_shows_what_a_dry_run_prints(monkeypatch, name):
    section = PAGE.split(f"### {name}\n", 1)[1]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block and block[1] == shown(name, monkeypatch)


def test_the_table_of_what_fits_is_what_the_forecast_says(monkeypatch):
    section = PAGE.split("### What fits on GPUs with 80 GB\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert table[2:] == rows(monkeypatch)
