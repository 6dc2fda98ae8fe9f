"""What the documentation says is there, and what it shows works."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.reference import reference_markdown
from mortal_steps.recipes.file import LimitsConfig
from mortal_steps.recipes.table import STAGES, TRAIN

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
TOML = [
    pytest.param(page, block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()))
]

spec = importlib.util.spec_from_file_location("docs_check", ROOT / "docs" / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def test_the_page_on_configuration_is_what_the_configuration_says():
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == reference_markdown(), "`make docs` writes it anew"
    about = re.findall(r"^## `.*`\n\n(.*)$", written, re.M)
    assert len(about) > 20
    assert [each for each in about if not each.endswith((".", "```toml"))] == []
    assert 'as `algorithm.type = "sft"` takes them. Present only' in written
    assert "By default it removes nothing." in written


@pytest.mark.parametrize(("page", "block"), TOML)
def test_an_example_of_a_configuration_is_one(page, block, tmp_path, monkeypatch):
    for name, text in re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```", page.read_text(), re.M | re.S
    ):
        (tmp_path / name).write_text(text)  # reading some configurations imports it
    monkeypatch.chdir(tmp_path)
    values = tomllib.loads(block)
    for name, stage in values.get("stages", {}).items():
        stage.pop("config", None)  # a file with more keys
        if (kind := stage.pop("type", TRAIN)) in STAGES:  # and not one of the user's
            STAGES.load(kind)(name, stage, "recipe")
    if "limits" in values:
        LimitsConfig.model_validate(values["limits"])
    elif "stages" not in values:
        parse_config(values)


@pytest.fixture
def project(tmp_path):
    """A small repository whose documentation is right."""
    (tmp_path / "Makefile").write_text("train:\n\techo\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loop.py").write_text("")
    (tmp_path / "other.md").write_text("# A `title`, two words\n\n## Again\n\n## Again\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-title-two-words) [c](other.md#again-1) [d](#here)\n"
        "[e](https://example.com/nothing) `code/loop.py` `loop.py` `make train`\n"
        "# Here\n"
        "```bash\nmake train   # make sure\n```\n"
        "```text\n[f](nowhere.md)\n```\n"
    )
    return page


def test_documentation_that_is_right_passes(project):
    assert list(check.problems(project.parent)) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[a](nowhere.md)", "nowhere.md leads nowhere"),
        ("![a](nowhere.svg)", "nowhere.svg leads nowhere"),
        ("[a](other.md#again-2)", "#again-2 names no heading"),
        ("[a](../outside.md)", "leaves the repository"),
        ("see `code/walk.py`", "no file code/walk.py"),
        ("run `make tea`", "no target tea"),
        ("```bash\nmake tea\n```", "no target tea"),
    ],
)
def test_what_is_not_there_is_named_with_its_line(project, text, part):
    lines = project.read_text().count("\n")
    project.write_text(project.read_text() + text + "\n")
    [problem] = check.problems(project.parent)
    assert part in problem
    assert problem.startswith(("page.md:", "other.md:"))
    assert int(problem.split(":")[1]) > lines
