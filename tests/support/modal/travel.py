"""A Volume that is a folder, and records that travel to it and back."""

from mortal_steps.store.files import write_atomically
from mortal_steps.types import (
    Problem,
)

PROBLEMS = [Problem(id="train-0", prompt="ab=")]
MADE = [Problem(id="train-0", prompt="made of it")]


class Volume:
    """A Volume that is a folder, as both sides see it; counts what is asked of it."""

    name = "mortal-runs"

    def __init__(self, root):
        self.root = root
        self.asked = []
        self.away = None

    def reload(self):
        self.asked.append("reload")

    def commit(self):
        self.asked.append("commit")

    async def find(self, path):
        file = self.root / path
        return file.read_bytes() if file.exists() else None

    async def read(self, path):
        self.asked.append("read")
        return (self.root / path).read_bytes()

    async def upload(self, files):
        if self.away:
            raise self.away
        self.asked.append("upload")
        for path, content in files.items():
            write_atomically(self.root / path, content)

    async def files(self, folder):
        return []
