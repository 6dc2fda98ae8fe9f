"""Which tensors a folder has, and whether another one's are the same."""

import pytest

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.model_files import check_shapes, tensor_shapes, tensors_in
from tests.support.rollout.tiny_model import build_tiny_model, with_tensors_to_spare


def test_an_index_says_which_files_are_the_model(tmp_path):
    whole = tensor_shapes(build_tiny_model(tmp_path, seed=1, tied=False))
    split = tensor_shapes(with_tensors_to_spare(tmp_path))
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": (16,)}
    assert split == {**whole, **buffer}
    assert {name for name, _ in tensors_in(tmp_path)} == split.keys()
    check_shapes(whole, split, tied=False, folder=tmp_path, by_name=False)
    with pytest.raises(EngineError, match="inv_freq"):
        check_shapes(whole, split, tied=False, folder=tmp_path)
    other = {**whole, "lm_head.weight": (1, 1)}
    with pytest.raises(EngineError, match=r"lm_head\.weight"):
        check_shapes(other, split, tied=False, folder=tmp_path, by_name=False)


def test_a_folder_in_another_format_has_none(tmp_path):
    assert tensor_shapes(tmp_path, required=False) == {}
    with pytest.raises(EngineError):
        tensor_shapes(tmp_path)
