"""Processes on this machine (`mortal_steps.compute.local`), each on the GPUs that it is given."""
