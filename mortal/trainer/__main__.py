"""`python -m mortal.trainer`: the process that drives a trainer's run."""

from mortal.trainer.process import main

main()
