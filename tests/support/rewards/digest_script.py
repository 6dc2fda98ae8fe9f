"""A script whose rewards refer to all kinds of things, and its digests."""

from mortal_steps.rewards.pickles.digest import digest_of

SCRIPT = """
import dataclasses, enum, functools, logging, re

THRESHOLD = 0.5
WORDS = {"one", "two", "three", "four"}
log = logging.getLogger("mine")

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Weights:
    low: float = 0.0
    high: float = 1.0
    words: list = dataclasses.field(default_factory=list)

class Reward:
    "Scores."
    __slots__ = ("weights", "owner")
    def __init__(self):
        self.weights = Weights()
        self.owner = self
    @property
    def span(self):
        return self.weights.high - self.weights.low
    @functools.cache
    def helper(self): return super().__repr__()
    def __call__(self, completions, **kwargs):
        return [self.span + (Color.RED in {Color.RED})] * len(completions)

def made(bonus):
    pattern = re.compile(r"\\d+")
    def inner(completions, *, scale=2.0, **kwargs):
        import json
        return [bonus + scale * THRESHOLD * bool(pattern.search(c)) * len(WORDS & {c, "one"})
                for c in completions if c in {"a", "b", "cd"} or fallback(c)]
    return inner

def fallback(text):
    log.debug(text)
    return recursive(len(text))

def recursive(number):
    return number and recursive(number - 1)

def partly():
    return functools.partial(made(1), scale=3.0)
"""

REWARDS = """
REWARDS = made(0.5), made(0.25), partly(), Reward(), lambda completions, **kwargs: [1.0]
"""


def digests_of(script: str = SCRIPT) -> list[str]:
    """Of its five rewards, where the script is what `python` was called with."""
    namespace = {"__name__": "__main__"}
    exec(compile(script + REWARDS, "script.py", "exec"), namespace)
    return [digest_of(one, "it")[0] for one in namespace["REWARDS"]]
