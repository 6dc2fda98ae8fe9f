"""Fork on demand what is an interpreter elsewhere: `python -P -m MODULE ARGUMENT...`.

This imports no torch: a holder that has imported it says what its forks do first.
"""

import contextlib
import importlib
import os
import pickle
import signal
import sys
from pathlib import Path

from mortal_steps.compute import container, forkserver
from mortal_steps.hosts import inside
from mortal_steps.system import asked, child, forks
from tests.support.forking.environment import SET_BY_IMPORTS
from tests.support.forking.interpreter import end, exit_code

FOLLOWER = "mortal_steps.policy.ranks.follower"
EXPORTING = "mortal_steps.policy.model_files.exporting"
ASKED = ("mortal_flows.stage_process", "mortal.trainer.process")
"""Modules that call `answer_once`, which lets signals come again itself."""
MODULES = {
    forkserver.__name__: (0,),
    container.__name__: (0,),
    inside.__name__: (0, 1, 2),
    FOLLOWER: (0, 1, 7),
    EXPORTING: (),
    **dict.fromkeys(ASKED, (0,)),
}
"""What is forked, and which of its arguments are descriptors, or several with commas between."""


def hold(orders, begin=lambda module: None):
    """Fork on demand, and end with the owner and with all that was forked. Each fork calls `begin`
    with its module."""
    os.setpgid(0, 0)  # the end of the owner's group is not the holder's, which ends the rest
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)  # who reads what the owner prints waits for nobody else
    child.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the owner's
    forked = forks.serve_forks(orders, largest=forkserver.LARGEST_ORDER)
    if forked is None:
        child._kill_descendants()
        os._exit(0)
    orders.close()
    order, (told, *streams) = forked
    streams, passed = streams[:3], streams[3:]
    signal.pthread_sigmask(signal.SIG_BLOCK, asked.STOPPING)
    with contextlib.suppress(OSError), open(told, "wb") as asks:  # the owner has ended
        asks.write(forks.STATUS.pack(os.getpid()))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (module, *arguments), names, environment, folder = pickle.loads(order)
    known = dict(zip(map(str, names), map(str, passed), strict=True))
    for place in MODULES[module]:
        wanted = filter(None, arguments[place].split(","))
        arguments[place] = ",".join(known[each] for each in wanted)
    for stream, own in enumerate(streams):
        os.dup2(own, stream)
        os.close(own)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({**SET_BY_IMPORTS, **environment})
    sys.argv = [module, *arguments]
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(module.rpartition(".")[2])
    begin(module)
    if module not in ASKED:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, asked.STOPPING)
    end(exit_code(_be, module, arguments))


def _be(module, arguments):
    if module == container.__name__:
        container.serve_owner(int(arguments[0]))
    elif module == inside.__name__:
        inside.serve(*map(int, arguments))
    elif module in (FOLLOWER, EXPORTING):
        importlib.import_module(module).main(*arguments)
    else:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        importlib.import_module(module).main()
