"""Algorithms that learn from rows of a dataset, by TRL's own trainers.

The rows are prepared once, before a run begins (`preparing.py`), and lie in the run directory. The
order of an epoch is a record, too (`epochs.py`); a step's batch names a part of it. The trainer
draws from random streams of its own, which are part of its state (`streams.py`), so that a run has
the bits of stock `.train()`, dropout and evaluations included.
"""
