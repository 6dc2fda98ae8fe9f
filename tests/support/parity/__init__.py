"""Stock TRL, the actor, and the actor killed and resumed: configurations drawn and compared."""
