"""What torch notes where an import counts GPUs: each fork of the process is a bad one. There are no
GPUs."""

import os

import torch

from mortal_steps.system import gpus

os.register_at_fork(after_in_child=lambda: setattr(torch.cuda, "_is_in_bad_fork", lambda: True))
gpus.GPUS = ()
