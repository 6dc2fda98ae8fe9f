"""Commands and scripts in processes that have imported torch and TRL before they begin.

Each is forked off the preloaded process of `training_forks`, and is an interpreter's of its own in
all that a command can see: folder, environment, output, exit code. The process from which a run
forks its workers is forked off it, too, before it begins. Tests of how interpreters start use
`subprocess`.
"""

import atexit
import contextlib
import fnmatch
import multiprocessing
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from multiprocessing.reduction import DupFd
from pathlib import Path

from mortal_steps.compute import forkserver
from mortal_steps.policy.ranks import follower, machines
from mortal_steps.system import child, forks
from mortal_steps.system.child import Child
from mortal_steps.system.rounding import decides_rounding
from tests.support.paths import ROOT
from tests.support.training_forks import training_forks


class ForkedCommand:
    """The process of what follows `python` in a command line, as `subprocess.Popen` has it."""

    def __init__(self, arguments, *, cwd, env=None, stdout=None):
        reads, writes = None, os.dup(1)
        if stdout == subprocess.PIPE:
            os.close(writes)
            reads, writes = os.pipe()
        self.stdout = None if reads is None else os.fdopen(reads)
        told = (list(map(str, arguments)), str(cwd), dict(os.environ if env is None else env))
        # Whatever a failed test has left does not keep pytest from ending.
        forked = training_forks().Process(target=_begin, args=(*told, _Given(writes)), daemon=True)
        forked.start()
        os.close(writes)
        self.pid = forked.pid
        self._process = forked

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """Return all that it has printed once it has ended."""
        if not self.stdout.closed:
            reading = threading.Thread(target=self._read, daemon=True)
            reading.start()
            reading.join(timeout)
            if reading.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait(timeout)
        return self._said, None

    def _read(self):
        with self.stdout:
            self._said = self.stdout.read()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class _Given:
    """A descriptor that the new process has, too."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __reduce__(self):
        return _open, (DupFd(self._descriptor),)


def _open(dup):
    return dup.detach()


def _begin(arguments, folder, environment, output):
    """Be the interpreter with these arguments, and end as it would."""
    multiprocessing.current_process()._config["daemon"] = False  # it may have children
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # found anew, in the environment
    sys.path[:] = [each for each in sys.path if each not in ("", str(ROOT))]
    forkserver.Child = Holder().child
    _end(_code(_run, *arguments))


def _end(code):
    """End as an interpreter does."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _code(main, *arguments):
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


def _run(first, *others):
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


DESCRIPTORS = {forkserver.__name__: (0,), follower.__name__: (0, 1, 7)}
"""Which arguments of a module are descriptors, or several with commas between them."""


READ_BY_IMPORTS = ("HF_*", "TRANSFORMERS_*", "TORCH_*", "CUDA_*", "PYTHONPATH")
TELEMETRY = "HF_HUB_DISABLE_TELEMETRY"
"""Every worker has it; offline, it changes nothing."""


def _of_imports(environment):
    """What libraries have read of an environment when they are imported."""

    def is_read(name):
        return decides_rounding(name) or any(fnmatch.fnmatch(name, one) for one in READ_BY_IMPORTS)

    return {name: environment[name] for name in environment if is_read(name) and name != TELEMETRY}


PRELOADED_WITH = _of_imports(os.environ)
SET_BY_IMPORTS: dict[str, str] = {}
"""Variables that libraries have set when they were imported."""


def fork_ranks():
    """Have this process, which has done nothing, fork the ranks that it starts."""
    machines.Child = Holder().child


class Holder:
    """A process that nothing has happened to. Off it processes are forked that are interpreters
    elsewhere, `python -P -m MODULE ARGUMENT...` of one of these modules."""

    def __init__(self):
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._orders.close()
            _hold(theirs)
        theirs.close()

    def child(self, command, *, pass_fds, output=None, env=None, scratch=""):
        """In place of `Child`. An interpreter of its own where it is another, or where libraries
        read something else when they are imported."""
        env = os.environ if env is None else env
        if command[0] != sys.executable or _of_imports(env) != PRELOADED_WITH:
            return Child(command, output=output, pass_fds=pass_fds, env=env, scratch=scratch)
        order = pickle.dumps((command[3:], list(pass_fds), dict(env), os.getcwd()))
        with contextlib.ExitStack() as opened:
            if output is None:  # what this process has
                output = opened.enter_context(os.fdopen(os.dup(2), "wb"))
            return _ForkedChild(self._orders, order, [output.fileno(), *pass_fds])


def _hold(orders):
    """Fork on demand, and end with the owner and with all that was forked."""
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
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order, (output, *passed) = forked
    (module, *arguments), names, environment, folder = pickle.loads(order)
    given = dict(zip(map(str, names), map(str, passed), strict=True))
    for place in DESCRIPTORS[module]:
        wanted = filter(None, arguments[place].split(","))
        arguments[place] = ",".join(given[each] for each in wanted)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({**SET_BY_IMPORTS, **environment})
    sys.argv = [module, *arguments]
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(module.rpartition(".")[2])
    if module == forkserver.__name__:
        forkserver.main()
    _end(_code(follower.main, *arguments))


class _ForkedChild:
    """As `Child`."""

    def __init__(self, holder, order, descriptors):
        self.returncode = None
        self._reading = threading.Lock()
        self._answers, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(holder, [order], [theirs.fileno(), *descriptors])

    def poll(self):
        with self._reading:
            if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
                self._read()
        return self.returncode

    def wait(self):
        with self._reading:
            if self.returncode is None:
                self._read()
        return self.returncode

    def _read(self):
        status = self._answers.recv(forks.STATUS.size)
        self.returncode = forks.STATUS.unpack(status)[0] if status else -signal.SIGKILL
        self._answers.close()

    def kill(self):
        with contextlib.suppress(OSError):  # it has ended
            self._answers.shutdown(socket.SHUT_WR)

    def kill_all(self):
        self.kill()
        self.wait()
