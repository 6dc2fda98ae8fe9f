"""One call of reward functions, as TRL's GRPOTrainer makes it.

calls               the arguments of a call, and its result: scores or a failure
dispatch            calling functions; only real scores are accepted
plain               what a function reported, as plain values and short texts
"""
