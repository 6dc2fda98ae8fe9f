def matches(completions, answer, **kwargs):
    """Share of the answer's letters in their place."""
    return [
        sum(a == b for a, b in zip(text, right, strict=False)) / len(right)
        for text, right in zip(completions, answer, strict=True)
    ]
