"""Stock TRL, the actor, and the actor killed and resumed: the same bits?"""
