"""The `transformers` engine."""
