"""`MortalTrainer`: training from Python, by the same flow as `mortal train`.

modes       where a run's workers are
settings    the trainer's parameters as a configuration
objects/    what was given as an object, as files
messages    what the trainer's process and the one that drives the run tell each other
owner       the process that drives a run, seen from the one that asked for it
process     the same from inside
asking      what the trained model is asked
elsewhere   a run that a container on Modal drives
result      what came of a run
"""

from mortal.trainer.modes import Distributed, GPUConfig, SingleNode
from mortal.trainer.result import TrainingResult
from mortal.trainer.trainer import MortalTrainer

__all__ = ["Distributed", "GPUConfig", "MortalTrainer", "SingleNode", "TrainingResult"]
