"""Whether two mathematical expressions are equal, as math-verify (on SymPy) finds.

What a model writes can keep SymPy busy for ever (`9^{9^{9^9}}`) or fill the memory. So each
comparison is a program of a sandbox's lane, which has imported SymPy once and forks for each.

- `verdicts.py`: the vocabulary, and the lanes that are asked for verdicts
- `comparing.py`: what is compared, and how; runs in the lanes
"""
