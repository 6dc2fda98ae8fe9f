"""Be an interpreter, in a process that was forked."""

import atexit
import fcntl
import os
import pickle
import runpy
import signal
import sys
import tempfile
import threading
import traceback
import types

from mortal_steps.compute.forkserver import LARGEST_ORDER
from mortal_steps.system import forks
from tests.support.paths import ROOT


def forget_pytest():
    """Have neither folders nor places of imports of pytest's process."""
    tempfile.tempdir = None  # found anew, in the environment
    sys.path[:] = [each for each in sys.path if each not in ("", str(ROOT))]


def serve(orders, first=lambda streams: None):
    """Fork on demand what is an interpreter elsewhere, as `ForkedChild` orders it, until the owner
    ends. Each fork calls `first` with the descriptors that it is given."""
    forked = forks.serve_forks(orders, largest=LARGEST_ORDER)
    if forked is None:
        os._exit(0)
    orders.close()
    order, (told, *given) = forked
    with open(told, "wb") as asks:
        asks.write(forks.STATUS.pack(os.getpid()))
    first(given)
    command, numbers, environment, folder = pickle.loads(order)
    be(command, [0, 1, 2, *numbers], given, environment, folder)


def be(command, numbers, given, environment, folder):
    """Be what follows `python` in a command line, with these descriptors under these numbers."""
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for each in given]
    for each in given:
        os.close(each)
    for own, number in zip(aside, numbers, strict=True):
        os.dup2(own, number)
        os.close(own)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.update(environment)
    end(exit_code(run, *command))


def end(code):
    """End as an interpreter does."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def exit_code(main, *arguments):
    """Return the exit code of an interpreter that runs this."""
    try:
        main(*arguments)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return -signal.SIGINT
    except BaseException:  # noqa: BLE001 - the end of the process, as of an interpreter
        traceback.print_exc()
        return 1
    return 0


def run(first, *others):
    """Run what follows `python` in a command line."""
    if first == "-m":
        name, *sys.argv[1:] = others
        sys.path.insert(0, os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        source, *sys.argv[1:] = others
        sys.argv[0] = "-c"
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(source, "<string>", "exec"), vars(main))
    else:
        sys.argv[:] = [first, *others]
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        runpy.run_path(first, run_name="__main__")
