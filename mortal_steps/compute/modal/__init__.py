"""Workers in Modal containers.

compute.py    `ModalCompute`: which container serves which role
calls.py      one call: submitted once, attached to by whoever comes back, polled to its end
orders.py     what travels: an order there, its outcome back
cargo.py      small records, which travel inside orders and outcomes
mirror.py     other files on their way between this run directory and the Volume
project.py    the files of the reward functions, for a container that has none
host.py       the inside of a container; knows no Modal
freshness.py  when a container can do without reloading the Volume
"""
