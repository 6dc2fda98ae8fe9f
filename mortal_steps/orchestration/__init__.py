"""What the process of the flow does with a run; no worker imports it.

checking             what can be found out before anything is started; defaults; the forecast
open_run             begin a run, or continue one
session, evaluation  the run together with the workers that serve it: its stages
budget               what that has cost, and whether it may cost more
batch_sources        what each step trains on
driver, tracking     hold the lease, own the workers, note how the run ended
reporter             shows progress elsewhere
forking              another run from a checkpoint of one
trials               rewards and samples without a run
"""
