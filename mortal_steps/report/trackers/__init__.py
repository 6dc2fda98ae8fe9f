"""Trackers follow a run: one file for each, and a line in mortal_steps/report/trackers/table.py.

A process of its own (`follow`) reads what a run has committed and brings it to one tracker, step by
step. So nothing of a tracker is imported, waits or fails where the run is driven.
"""

FOLDER = "tracking"
"""In the run directory: the trackers' own files, unless the environment puts them elsewhere."""
