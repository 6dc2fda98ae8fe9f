"""Threads that leave the processor to others."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.system.threads import BACKGROUND_NICENESS, yield_to_others


def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only processes have a niceness")
def test_one_thread_yields_and_the_others_do_not():
    before = niceness()
    with ThreadPoolExecutor(1, initializer=yield_to_others) as threads:
        assert threads.submit(niceness).result() == max(before, BACKGROUND_NICENESS)
        threads.submit(yield_to_others).result()  # once more changes nothing
    assert niceness() == before
