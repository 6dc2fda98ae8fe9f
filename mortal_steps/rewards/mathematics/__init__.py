"""Whether two mathematical expressions are equal, as math-verify (on SymPy) finds.

What a model writes can keep SymPy busy for ever (`9^{9^{9^9}}`) or fill the memory. So comparisons
run in processes that the kernel ends when the CPU time of one comparison is used up:

- `verdicts.py`: the vocabulary
- `comparing.py`: what is compared, and how; runs in those processes
- `server.py`: the process that imports SymPy once and forks those that compare
- `process.py`: its owner's side, in the process of the reward functions
"""
