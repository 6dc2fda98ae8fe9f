"""One call of reward functions, as TRL's GRPOTrainer makes it.

calls               the arguments of a call, its result, and what a function reported
dispatch            calling functions; only real scores are accepted
"""
