"""An import that counts the GPUs of a machine that has one."""

from mortal_steps.system import gpus
from tests.support.preloaded import with_cuda_build

assert with_cuda_build
gpus.GPUS = ("/dev/null",)  # a file that is there
