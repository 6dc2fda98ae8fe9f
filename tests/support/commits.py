"""Work killed at one of its commits or in another place, and what that leaves."""

import os
import signal
from pathlib import Path


def in_a_process_killed_at(nth, after, work, at=(Path, "rename")):
    """Fork, and kill the child with SIGKILL at its `nth` rename, before or after it; or at the
    `nth` call of another method than that, given by its class and its name."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    count = 0
    method = getattr(*at)

    def deadly(*given):
        nonlocal count
        count += 1
        if count == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = method(*given)
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(*at, deadly)
    try:
        work()
    finally:
        os._exit(0)


def leftovers(root):
    return [
        path for path in root.rglob(".*") if path.suffix in {".partial", ".removed", ".replaced"}
    ]
