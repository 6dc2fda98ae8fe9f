"""mortal_steps.promotion.chats: which models have the same chat template."""

import json

import pytest

from mortal_steps.errors import CorruptFileError
from mortal_steps.promotion.chats import template_in
from tests.support.refused import refused

OWN = {"fields": {"content": {"content": "text"}}}


def saved(folder, settings, text=None):
    """Return the template of a model with these files."""
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if text is not None:
        (folder / "chat_template.jinja").write_text(text)
    return template_in(folder.iterdir())


def test_a_template_is_the_same_in_either_of_its_files(tmp_path):
    beside = saved(tmp_path / "beside", {"model_max_length": 64}, "{{ a }}")
    assert beside == saved(tmp_path / "within", {"chat_template": "{{ a }}", "eos_token": "b"})
    assert beside == saved(tmp_path / "both", {"chat_template": "{{ old }}"}, "{{ a }}")


@pytest.mark.parametrize(
    ("settings", "text"), [({}, "{{ b }}"), ({}, None), ({"response_template": OWN}, "{{ a }}")]
)
def test_another_text_or_another_way_to_read_it_is_another_template(tmp_path, settings, text):
    assert saved(tmp_path / "one", {}, "{{ a }}") != saved(tmp_path / "other", settings, text)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_damaged_file_is_named(tmp_path, name):
    saved(tmp_path / "model", {}, "{{ a }}")
    (tmp_path / "model" / name).write_bytes(b"{\xff")
    with refused(CorruptFileError, str(tmp_path / "model" / name)):
        template_in((tmp_path / "model").iterdir())
