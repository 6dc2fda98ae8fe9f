"""Ways for an engine to take new weights, a module each; `mortal_steps/config/weight_sync.py` lists
them. What proves that the engine has taken them is common to all (canary.py)."""
