"""The smallest shape of a language model, for tests that never look at what it computes."""

SMALLEST = {
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 8,
}
