"""What the process of the flow does with a run; no worker imports it.

preflight  checks  resolve_defaults   what can be found out before anything is started
forecast  forecast_lines   which GPU each worker takes, and the memory
open_run              begin a run, or go on with one: `open_run`
session               the run together with the workers that serve it
driver                hold the lease, own the workers, note how the run ended
fork  fork_files      another run from a checkpoint of one
"""
