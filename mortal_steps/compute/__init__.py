"""Where workers run. A worker is a plain class; it knows nothing of what is here.

base                          roles, and how their workers are started
roles                         the workers of a run: actor, rollout, reward
pool                          `Compute`: which workers of a role are free; lost ones are restarted
local, local_container        processes on this machine, as their owner sees them
container                     the inside of such a process
forkserver                    workers forked from a process that has imported what they need
devices, placement            GPUs of this machine, and which worker is on which
memory                        how much memory training takes
modal                         containers on Modal
"""
