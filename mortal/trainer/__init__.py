"""Training from Python, with the same flow as `mortal train`.

trainer       `MortalTrainer` and its parameters
rows          `SFTTrainer` and the other trainers that learn from rows
distillation  `DistillationTrainer`, whose parameters are in distillation_from_trl
controls      what can be done with a trainer's run
scripts       what scripts for TRL call beside training
modes         where a run's workers are
face          turns a trainer's parameters into a configuration; which keys the parameters are is in
              settings, and in rows_settings
from_trl      turns TRL's configuration into parameters and keys, and so does rows_from_trl; what is
              alike for all is in trl_values and, about sampling, in sampling_from_trl; the names
              are in trl_names
objects/      turns Python objects among the parameters into files
owner         the trainer's side of the process that drives the run, and their messages
process       the inside of that process, and what it can do
result        the result of a run; its table of metrics is in metrics_table
recipe        `Recipe`: trainers as stages that begin with what other stages produce
"""

from mortal.trainer.distillation import DistillationTrainer
from mortal.trainer.modes import Distributed, GPUConfig, SingleNode
from mortal.trainer.recipe import Recipe
from mortal.trainer.result import TrainingResult
from mortal.trainer.rows import DPOTrainer, KTOTrainer, RewardTrainer, SFTTrainer
from mortal.trainer.trainer import MortalTrainer

__all__ = [
    "DPOTrainer",
    "DistillationTrainer",
    "Distributed",
    "GPUConfig",
    "KTOTrainer",
    "MortalTrainer",
    "Recipe",
    "RewardTrainer",
    "SFTTrainer",
    "SingleNode",
    "TrainingResult",
]
