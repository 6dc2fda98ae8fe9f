"""The errors that MORTAL raises on purpose; `MortalError` is the base of all of them."""

from mortal_steps import errors
from mortal_steps.errors import *  # noqa: F403

__all__ = [name for name, each in vars(errors).items() if isinstance(each, type)]
