"""A server that speaks OpenEnv's protocol, of a game: say the number that `reset` has told.

python -m tests.support.environments.openenv_server PORT SESSIONS FIRST

The numbers begin with FIRST.
"""

import json
import random
import sys
import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

TOOL = {
    "name": "say",
    "description": "Say a number.",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


GARBLED = {
    "garble": "<html>Bad gateway</html>",
    "leave out": '{"type": "observation", "data": {"reward": 1.0}}',
    "praise": '{"type": "observation", "data": {"observation": {"text": ""}, "reward": "much"}}',
    "forget": '{"type": "observation", "data": {"observation": {}, "reward": 1.0}}',
}
"""What a message has answered that is no answer."""


class Game:
    """A session. Rewards are for numbers alone; the game ends with the right one."""

    def __init__(self, first):
        self.first, self.is_done = first, False

    def reset(self, seed, **row):
        self.number = self.first + random.Random(seed).randrange(100)
        return self.told(f"Say {self.number}, {row.get('name', 'you')}.", reward=0.0)

    def step(self, **action):
        assert not self.is_done
        if action.get("type") == "list_tools":
            return self.told("", tools=[TOOL])
        if action.get("type") == "call_tool":
            number = action["arguments"].get("number")
            if number is None or number < 0:
                error = {"error_type": "invalid_args", "message": "which number?"}
                error = error if number is None else "below 0"
                return self.told("", tool_name="say", result=None, error=error)
            right = number == self.number
            text = {"type": "text", "text": "right" if right else "wrong"}
            more = {"tool_name": "say", "result": {"content": [text]}}
            return self.told("", reward=float(right), done=right, **more)
        text = action["message"]
        if text == "break":
            raise RuntimeError("the game is broken")
        right = text == str(self.number)
        reward = float(right) if text.isdigit() else None
        return self.told("right" if right else f"not {text}", reward=reward, done=right)

    def told(self, text, *, reward=None, done=False, **more):
        self.is_done = done
        return {"observation": {"text": text, **more}, "reward": reward, "done": done}


def main(port: int, sessions: int, first: int, made: type = Game) -> None:
    """Serve until killed."""
    free = threading.Semaphore(sessions)

    def answer(connection: ServerConnection) -> None:
        if not free.acquire(blocking=False):
            data = {"message": "full", "code": "CAPACITY_REACHED"}
            connection.send(json.dumps({"type": "error", "data": data}))
            return
        try:
            game = made(first)
            for text in connection:
                asked = json.loads(text)
                if asked["data"].get("message") in GARBLED:
                    connection.send(GARBLED[asked["data"]["message"]])
                    continue
                try:
                    found = getattr(game, asked["type"])(**asked["data"])
                    told = {"type": "observation", "data": found}
                except RuntimeError as error:
                    data = {"message": str(error), "code": "EXECUTION_ERROR"}
                    told = {"type": "error", "data": data}
                connection.send(json.dumps(told))
        except ConnectionClosed:
            pass
        finally:
            free.release()

    with serve(answer, "127.0.0.1", port) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
