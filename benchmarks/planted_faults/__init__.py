"""Faults planted between trainer and sampler: who notices? See `__main__.py`."""
