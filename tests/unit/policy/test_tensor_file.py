"""What is exported in one pass is, byte for byte, what the libraries write."""

import pytest
import torch
from safetensors.torch import save, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from mortal_steps.policy.model_files import writing
from mortal_steps.policy.model_files.staging import copied, pieces_of
from mortal_steps.policy.model_files.tensor_file import (
    TYPE_NAMES,
    digest_of_tensors,
    write_tensors,
)
from mortal_steps.store.digests import digest_of_file
from tests.support.parity.architectures import ARCHITECTURES, SHAPE


def model_of(family):
    config = AutoConfig.for_model(family, **{**SHAPE, "vocab_size": 40, **ARCHITECTURES[family]})
    return AutoModelForCausalLM.from_config(config)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_an_exported_model_has_the_files_that_save_pretrained_writes(family, tmp_path):
    model = model_of(family)
    for own_names in (False, True):
        theirs, ours = tmp_path / f"theirs-{own_names}", tmp_path / f"ours-{own_names}"
        model.save_pretrained(theirs, save_original_format=not own_names)
        digests = writing._save(model, ours, writing.published_tensors(model, own_names=own_names))
        assert files_of(ours) == files_of(theirs)
        assert digests == {"model.safetensors": digest_of_file(ours / "model.safetensors")}


def test_a_large_model_is_split_as_save_pretrained_splits_it(tmp_path, monkeypatch):
    model = model_of("qwen3")
    monkeypatch.setattr(writing, "LARGEST_FILE", "5KB")
    model.save_pretrained(tmp_path / "theirs", max_shard_size="5KB")
    digests = writing.save_model(model, tmp_path / "ours")
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")
    assert len(digests) > 1
    assert {name: digest_of_file(tmp_path / "ours" / name) for name in digests} == digests


def test_every_type_of_tensor_is_written_as_the_library_writes_it(tmp_path):
    tensors = {
        f'{name} ü"{i}': torch.ones(i, 3).to(getattr(torch, name))
        for i, name in enumerate(TYPE_NAMES)
    }
    tensors |= {"turned": torch.arange(6.0).reshape(2, 3), "number": torch.tensor(2.0)}
    tensors |= {"large": torch.arange(100_000.0), "empty": torch.zeros(0, 4)}
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    tensors["turned"] = tensors["turned"].t().contiguous().t()  # not as it lies in memory
    digest = write_tensors(tmp_path / "ours", tensors)
    content = (tmp_path / "ours").read_bytes()
    assert content == (tmp_path / "theirs").read_bytes()
    assert digest == digest_of_tensors(tensors) == digest_of_file(tmp_path / "theirs")


def test_a_tensor_without_elements_has_no_pieces_on_a_gpu():
    assert not list(pieces_of(torch.empty(0, 4, device="meta")))  # which is not the CPU either


def test_a_checkpoint_links_the_published_file_only_where_it_is_the_same(tmp_path):
    for family, alike in {"qwen3": True, "mixtral": False}.items():
        model = model_of(family)
        there = tmp_path / family / "published"
        digests = writing.save_model(model, there)
        beside = {name: (there / name, digest) for name, digest in digests.items()}
        for changed in (False, True):
            folder = tmp_path / family / f"checkpoint-{changed}"
            tensors = writing.published_tensors(model, own_names=True)
            saved = writing._save(model, folder, tensors, beside)
            file = folder / "model.safetensors"
            assert file.samefile(there / file.name) is (alike and not changed)
            assert saved == {file.name: digest_of_file(file)}
            with torch.no_grad():
                next(model.parameters()).add_(1.0)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 48, 100])
def test_what_is_copied_by_turns_is_whole_and_waited_for(size):
    """As from a GPU, whose copies are done once they are waited for, and not before."""
    content = torch.arange(size, dtype=torch.uint8)
    memory, begun, found = [torch.zeros(16, dtype=torch.uint8) for _ in range(2)], [], []

    class Late:
        """A copy that takes until somebody waits for it."""

        def __init__(self):
            begin = 16 * len(begun)
            begun.append(self)
            self.piece = memory[(len(begun) - 1) % 2][: size - begin]
            self.copied = self.piece.clone()
            self.piece.zero_()

        def synchronize(self):
            self.piece.copy_(self.copied)

    for piece in copied(content, memory, Late):
        assert len(begun) == min(len(found) + 2, -(-size // 16)), "the next one is under way"
        found.append(piece.clone())
    assert torch.equal(torch.cat(found), content)


def test_a_tensor_on_a_cpu_is_written_from_its_own_memory():
    tensor = torch.randn(6, 8)
    (piece,) = pieces_of(tensor)
    assert piece.data_ptr() == tensor.data_ptr()


TENSORS = {
    "b.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "a.weight": torch.arange(5, dtype=torch.float32),
    "größe": torch.ones(2, dtype=torch.bfloat16),
    "a.half": torch.ones(3, dtype=torch.float16),
    "empty": torch.empty(0, 4),
    "scalar": torch.tensor(3.5),
    "counts": torch.arange(3),
    "mask": torch.tensor([True, False]),
}


@pytest.mark.parametrize("chosen", [TENSORS, {"a.weight": TENSORS["a.weight"]}, {}])
def test_the_order_and_the_filling_are_the_librarys(tmp_path, chosen):
    write_tensors(tmp_path / "ours", chosen)
    assert (tmp_path / "ours").read_bytes() == save(dict(chosen), metadata={"format": "pt"})
