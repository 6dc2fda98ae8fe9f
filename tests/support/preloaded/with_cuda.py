"""What torch notes where an import begins to use a GPU: each fork of the process is a bad one."""

import os

import torch

os.register_at_fork(after_in_child=lambda: setattr(torch.cuda, "_is_in_bad_fork", lambda: True))
