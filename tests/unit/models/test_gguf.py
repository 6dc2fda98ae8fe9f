"""Weights for llama.cpp in the place of a model: the error names the command that helps."""

import pytest

from mortal_steps.errors import ModelError
from mortal_steps.models.local_folder import check_folder


def refusal(path):
    with pytest.raises(ModelError) as raised:
        check_folder(path)
    return str(raised.value)


def test_a_folder_of_gguf_files_names_the_largest_and_the_command(tmp_path):
    (tmp_path / "q4.gguf").write_bytes(b"GGUF" + bytes(4))
    (tmp_path / "q8.gguf").write_bytes(b"GGUF" + bytes(8))
    assert f"`mortal import-gguf {tmp_path / 'q8.gguf'} FOLDER`" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert "mortal import-gguf" in refusal(tmp_path)
    (tmp_path / "model.safetensors").write_text("")
    check_folder(tmp_path)  # the files of transformers are taken


def test_a_file_names_the_command_whatever_it_is_called(tmp_path):
    (tmp_path / "model").write_bytes(b"GGUF" + bytes(4))
    assert f"`mortal import-gguf {tmp_path / 'model'} FOLDER`" in refusal(tmp_path / "model")


def test_another_file_is_no_model(tmp_path):
    (tmp_path / "model.safetensors").write_text("")
    assert "is a file; name the model's folder" in refusal(tmp_path / "model.safetensors")
