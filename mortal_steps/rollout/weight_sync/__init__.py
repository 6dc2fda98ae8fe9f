"""How an engine takes new weights (base.py), and the proof that it has taken them (canary.py)."""
