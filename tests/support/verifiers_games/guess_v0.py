"""A game for verifiers v0: guess a number."""

import os
import signal
from pathlib import Path

import verifiers as vf
from datasets import Dataset


class Guess(vf.MultiTurnEnv):
    """Tells whether the answer is higher or lower. `killed` names a file: until it is there, the
    process is killed at the second guess."""

    def __init__(self, killed: str, **settings):
        super().__init__(**settings)
        self.killed = killed

    async def env_response(self, messages, state, **kwargs):
        said = messages[-1].content.strip()
        if self.killed and len(state["trajectory"]) == 2 and not Path(self.killed).exists():
            Path(self.killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if said == state["answer"]:
            state["final_env_response"] = [vf.UserMessage(content="right")]
            return state["final_env_response"]
        return [vf.UserMessage(content="higher" if said < state["answer"] else "lower")]


def right(completion, answer, **kwargs):
    last = [each for each in completion if each.role == "assistant"][-1]
    return float(last.content.strip() == answer)


def away(completion, **kwargs):
    raise ConnectionError("the judge is away")


def best_of_all(completions, **kwargs) -> list[float]:
    return [0.0 for _ in completions]


def scales(broken):
    """Return a tool that cannot be asked until the file is there."""

    def weigh(item: str) -> str:
        """Weigh something.

        Args:
            item: What.
        """
        if not Path(broken).exists():
            Path(broken).touch()
            raise ConnectionError("the scales are away")
        return f"{item} weigh 3."

    return weigh


def load_environment(rewards=(), killed="", broken=""):
    more = {"away": away, "best_of_all": best_of_all}
    rows = [
        {"prompt": [{"role": "user", "content": f"Guess {number}"}], "answer": str(number)}
        for number in range(4)
    ]
    common = {
        "dataset": Dataset.from_list(rows),
        "rubric": vf.Rubric(funcs=[right, *(more[name] for name in rewards)]),
        "max_turns": 3,
    }
    return vf.ToolEnv(tools=[scales(broken)], **common) if broken else Guess(killed, **common)
