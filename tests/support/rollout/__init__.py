"""Tiny models, and what an engine must give for them."""
