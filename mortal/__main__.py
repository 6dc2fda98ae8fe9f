"""`python -m mortal`."""

from mortal.cli import main

main()
