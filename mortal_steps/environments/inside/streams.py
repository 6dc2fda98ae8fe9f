"""Random streams of episodes: what `random` and numpy's functions draw in an episode depends on its
seed, and not on the episodes that live in the same process."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import numpy.random  # numpy imports it when it is first used, which would be in each fork


class RandomStream:
    """The state of `random` and `numpy.random` in one episode."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).getstate()
        self._numpy = np.random.RandomState(numpy_seed(seed)).get_state()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let the block draw from the stream, which goes on where it was."""
        random.setstate(self._random)
        np.random.set_state(self._numpy)
        try:
            yield
        finally:
            self._random = random.getstate()
            self._numpy = np.random.get_state()


def numpy_seed(seed: int) -> int:
    """Return the part of a seed that numpy, and most games, take."""
    return seed % 2**32
