"""A model that MORTAL has written, and that was damaged since, is not trained on."""

import pytest

from mortal_steps.errors import ModelError
from mortal_steps.models.local_folder import check_listed_weights
from mortal_steps.store.digests import digest_of_file
from mortal_steps.store.folders import FOLDER_MANIFEST, manifest_of
from tests.support.refused import refused


@pytest.fixture
def folder(tmp_path):
    """Return a model in production."""
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"0123456789")
    listed = {path.name: digest_of_file(path) for path in tmp_path.iterdir()}
    (tmp_path / FOLDER_MANIFEST).write_bytes(manifest_of(listed))
    return tmp_path


def test_a_bit_that_has_flipped_is_found(folder):
    check_listed_weights(folder)
    (folder / "model.safetensors").write_bytes(b"0123456788")
    with refused(ModelError, "model.safetensors", "damaged", "mortal rollback"):
        check_listed_weights(folder)


def test_settings_may_be_edited_and_other_folders_are_not_listed(folder):
    (folder / "config.json").write_text("{}")
    check_listed_weights(folder)
    (folder / FOLDER_MANIFEST).write_text('{"files": ["of something else"]}')
    check_listed_weights(folder)
    (folder / FOLDER_MANIFEST).unlink()
    check_listed_weights(folder)
