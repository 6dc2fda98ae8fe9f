"""The reward host: a process of its own, in which users' reward functions run.

process             the host as its owner sees it: started, limited, killed, replaced
loss                how a host was lost, and what a user is told of it
visible             the environment variables that it sees
warden              the process around it, which ends what functions leave behind
inside              what runs in it: loads functions, calls them, answers
wire                its answers: JSON, checked
"""
