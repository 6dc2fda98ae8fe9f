"""`MortalTrainer`: training from Python, with the same flow as `mortal train`.

trainer     the trainer's parameters
controls    what can be done with its run
modes       where a run's workers are
settings    turns the trainer's parameters into a configuration
from_trl    turns TRL's configuration into the trainer's parameters, with the names in trl_names
objects/    turns Python objects among the parameters into files
owner       the trainer's side of the process that drives the run, and their messages
process     the inside of that process, and what it can do
result      the result of a run; its table of metrics is in metrics_table
"""

from mortal.trainer.modes import Distributed, GPUConfig, SingleNode
from mortal.trainer.result import TrainingResult
from mortal.trainer.trainer import MortalTrainer

__all__ = ["Distributed", "GPUConfig", "MortalTrainer", "SingleNode", "TrainingResult"]
