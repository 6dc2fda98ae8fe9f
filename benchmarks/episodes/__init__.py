"""Dialogues with tools: MORTAL beside stock TRL. See `__main__.py`."""
