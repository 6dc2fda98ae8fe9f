"""A tenant that is no reward: it counts words, and what is asked of it besides."""

import ctypes
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections import Counter

from mortal_steps.errors import DataError


class WordCounter:
    def __init__(self, *, ignored=()):
        self.ignored = set(ignored)
        self.times_called = 0

    def count(self, *, text):
        self.times_called += 1
        if not text:
            raise DataError("there is no text")
        return dict(Counter(word for word in text.split() if word not in self.ignored))

    def times(self):
        return self.times_called

    def pid(self):
        return os.getpid()

    def wrong(self):
        return "three"

    def hang(self):
        re.match(r"(a+)+$", "a" * 60 + "b")

    def end(self, *, code):
        os._exit(code)

    def fault(self):
        ctypes.string_at(0)

    def hashes_of(self, *, texts):
        return list(map(hash, texts))

    def start_another_of_its_group(self):
        return subprocess.Popen(["sleep", "600"]).pid

    def start_another(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    def sees(self, *, names):
        return [name for name in names if name in os.environ]

    def posted(self, *, url, text):
        with urllib.request.urlopen(url, text.encode(), timeout=30) as read:
            return read.read().decode()

    def wait(self, *, seconds):
        time.sleep(seconds)


class Unmakeable:
    def __init__(self):
        raise DataError("the file is missing")


class CounterWithThread(WordCounter):
    def __init__(self):
        super().__init__()
        waiting = threading.Event()
        threading.Thread(target=waiting.wait, name="background-of-the-user", daemon=True).start()
