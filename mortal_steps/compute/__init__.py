"""The workers of a run, wherever they are. A worker is a plain class; it knows nothing of this.

base                          roles, and how their workers are started
roles                         the workers of a run: actor, rollout, reward
pool                          `Compute`: which workers of a role are free; lost ones are restarted
local, local_container        processes on this machine, as their owner sees them
container                     the inside of such a process
forkserver                    workers forked from a process that has imported what they need
interpreters                  which interpreters they have
devices, placement            GPUs of this machine, and what is taken of one that workers share
memory                        how much memory training takes
"""
