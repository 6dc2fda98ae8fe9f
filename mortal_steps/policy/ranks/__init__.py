"""Several processes that train one model together, a *rank* each.

Rank 0 is the actor, and leads: it starts the others, tells them in which call to take part, and
alone decides, answers and writes files. What torch computes inside of a call is collective. All of
them end as soon as one has: a collective would wait minutes for a rank that is gone. The actor is
started again then, as after any other loss, and replays.

    flow -- request --> actor = rank 0: Crew -- order, socket --> rank 1 .. n-1: follower
                           \\_ TrlStepper <--- collectives (NCCL, gloo) ---> TrlStepper
"""
