"""Inference engines, a module each; `mortal_steps/config/engines.py` lists them."""
