"""Be an interpreter, in a process that was forked."""

import atexit
import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
import types

from tests.support.paths import ROOT


def forget_pytest():
    """Have neither folders nor places of imports of pytest's process."""
    tempfile.tempdir = None  # found anew, in the environment
    sys.path[:] = [each for each in sys.path if each not in ("", str(ROOT))]


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
