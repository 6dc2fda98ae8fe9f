"""Algorithms, a folder each; `mortal_steps/config/algorithm.py` lists them.

An algorithm is an `Algorithm`: its settings as fields, what it has against a configuration, and the
`Stepper` that trains. Its own package imports no torch and no TRL before a stepper is made: the
configuration is read with it.
"""

from mortal_steps.policy.algorithms.base import Algorithm, Stepper, algorithm_of

__all__ = ["Algorithm", "Stepper", "algorithm_of"]
