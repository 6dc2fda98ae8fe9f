"""Tokenizers with real chat templates, tiny models beside them, and stock TRL with tools."""
