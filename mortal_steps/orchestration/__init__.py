"""What the process of the flow does with a run; no worker imports it.

preflight, checks         what can be found out before anything is started
resolve_defaults          defaults that depend on the machine and the model
forecast, forecast_lines  which GPU each worker takes, and the memory
open_run                  begin a run, or continue one
session, evaluation       the run together with the workers that serve it: its stages
batch_source, batches     what each step trains on
driver, tracking          hold the lease, own the workers, note how the run ended
fork, fork_files          another run from a checkpoint of one
trial                     rewards and samples without a run
"""
