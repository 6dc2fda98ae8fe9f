"""The `vllm` engine."""
