"""One call of reward functions, as TRL's GRPOTrainer makes it.

calls               the arguments of a call, its result, and what a function reported
rows                columns and prompts, an object for each completion
failures            what is said of a call that failed
dispatch            calling functions; only real scores are accepted
"""
