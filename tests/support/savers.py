"""What a folder is filled with, by each library that writes one: twice SIZE or more."""

import safetensors.torch
import torch

SIZE = 256 * 1024


def save_with_safetensors(folder):
    safetensors.torch.save_file({"a": torch.zeros(SIZE)}, folder / "model.safetensors")


def save_with_torch(folder):
    torch.save(torch.zeros(SIZE), folder / "optimizer.pt")


def save_with_python(folder):
    (folder / "text").write_bytes(bytes(2 * SIZE))


SAVERS = [save_with_safetensors, save_with_torch, save_with_python]


def commit(store, save):
    with store.committing_folder("weights/v1") as folder:
        save(folder)
