"""What docs/extending.md writes into a configuration is found, as it stands on the page."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from mortal_steps.users_code.loading import import_code, names_code
from tests.support.docs_examples import examples, write_modules
from tests.support.paths import ROOT

PAGE = "extending.md"
TEXT = (ROOT / "docs" / PAGE).read_text()


def named(value: Any) -> Iterator[str]:
    """Every piece of code that a table of the configuration names."""
    if isinstance(value, str) and names_code(value):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from named(each)


def specs_of(heading: str) -> list[str]:
    blocks = [text for language, text in examples(PAGE, heading) if language == "toml"]
    return [spec for text in blocks for spec in named(tomllib.loads(text))]


SPECS = {heading: specs_of(heading) for heading in re.findall(r"^## (.*)$", TEXT, re.M)}


@pytest.mark.parametrize("heading", [heading for heading, specs in SPECS.items() if specs])
def test_what_the_page_names_is_what_it_defines(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {path.name for path in write_modules(PAGE, heading, tmp_path)}
    found = {spec: spec.partition(":")[0] for spec in SPECS[heading]}
    assert files <= set(found.values()), "each file of the section is named by its settings"
    for spec in [spec for spec, file in found.items() if file in files]:
        assert import_code(spec, heading).__name__ == spec.partition(":")[2]


def test_the_page_names_code_of_every_kind():
    assert sum(map(bool, SPECS.values())) >= 10
