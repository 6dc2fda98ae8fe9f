"""Inference engines, a module each; `mortal_steps/rollout/engines/table.py` lists them."""
