"""Commands and scripts in processes that have imported torch and TRL before they begin.

Each is forked off the preloaded process of `training_forks`, and is an interpreter's of its own in
all that a command can see: folder, environment, output, exit code. So is what a run starts of
`MODULES`: the process from which it forks its workers, its other workers, the hosts of users' code,
and the stages of a recipe. Tests of how interpreters start use `subprocess`.
"""

import atexit
import contextlib
import dataclasses
import fnmatch
import functools
import importlib
import json
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

import pytest

from mortal_steps.compute import container, forkserver, local_container
from mortal_steps.errors import ModelError
from mortal_steps.harnesses import running
from mortal_steps.hosts import inside
from mortal_steps.hosts import process as host_process
from mortal_steps.policy.model_files import exporting
from mortal_steps.policy.ranks import follower, machines
from mortal_steps.rewards import host as reward_host
from mortal_steps.serving import models
from mortal_steps.system import asked, child, forks
from mortal_steps.system.asked import AskedProcess
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
    _forget_pytest()
    _fork_what_is_started()
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


STAGE = "mortal_flows.stage_process"
MODULES = {
    forkserver.__name__: (0,),
    container.__name__: (0,),
    inside.__name__: (0, 1, 2),
    follower.__name__: (0, 1, 7),
    exporting.__name__: (),
    STAGE: (0,),
}
"""What is forked in place of an interpreter, and which of its arguments are descriptors, or several
with commas between them."""


READ_BY_IMPORTS = ("HF_*", "TRANSFORMERS_*", "TORCH_*", "CUDA_*", "PYTHONPATH")
QUIET = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS")
"""Workers have them, and so has whoever has imported what they need."""


def _of_imports(environment):
    """What libraries have read of an environment when they are imported."""

    def is_read(name):
        return decides_rounding(name) or any(fnmatch.fnmatch(name, one) for one in READ_BY_IMPORTS)

    return {name: environment[name] for name in environment if is_read(name) and name not in QUIET}


PRELOADED_WITH = _of_imports(os.environ)
SET_BY_IMPORTS: dict[str, str] = {}
"""Variables that libraries have set when they were imported."""


def fork_ranks():
    """Have this process, which has done nothing, fork the ranks that it starts."""
    machines.Child = Holder().child


def _forget_pytest():
    tempfile.tempdir = None  # found anew, in the environment
    sys.path[:] = [each for each in sys.path if each not in ("", str(ROOT))]


def _fork_what_is_started():
    """Have this process, which has done nothing, fork whatever it starts of `MODULES`, ranks
    apart."""
    holder = Holder()
    fork_by(holder, setattr)
    asked.AskedProcess = holder.asked


def fork_by(holder, patch):
    """Have workers, and hosts of rewards and harnesses, forked by the holder. Hosts of environments
    fork themselves for each episode, which is slower the more they have imported."""
    for place in (forkserver, local_container):
        patch(place, "Child", holder.child)
    for place in (reward_host, running):
        patch(place, "HostProcess", functools.partial(_HostByHolder, holder))
    patch(models, "export_in_process", functools.partial(_export, holder))


def _export(holder, checkpoint, folder, export):
    """In place of `export_in_process`."""
    arguments = [str(checkpoint), str(folder), json.dumps(dataclasses.asdict(export))]
    command = [sys.executable, "-P", "-m", exporting.__name__, *arguments]
    with tempfile.TemporaryFile() as output:
        if holder.child(command, pass_fds=[], output=output).wait():
            output.seek(0)
            raise ModelError(f"{checkpoint} cannot be exported:\n{output.read().decode()}")


class _HostByHolder(host_process.HostProcess):
    def __init__(self, holder, *arguments, **options):
        super().__init__(*arguments, **options)
        self._holder = holder

    def _launch(self):
        with _launching, pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_process, "Child", self._holder.child)
            super()._launch()


_launching = threading.Lock()


class Holder:
    """A process that nothing has happened to. Off it processes are forked that are interpreters
    elsewhere, `python -P -m MODULE ARGUMENT...` of `MODULES`."""

    def __init__(self):
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if os.fork() == 0:
                self._orders.close()
                _hold(theirs)

    def child(
        self, command, *, pass_fds, output=None, env=None, cwd=None, scratch="", continues=False
    ):
        """In place of `Child`. An interpreter of its own where it is another, or where libraries
        read something else when they are imported."""
        env = os.environ if env is None else env
        if command[0] != sys.executable or _of_imports(env) != PRELOADED_WITH:
            return Child(
                command,
                output=output,
                pass_fds=pass_fds,
                env=env,
                cwd=cwd,
                scratch=scratch,
                continues=continues,
            )
        return _ForkedChild(self._orders, command[3:], pass_fds, output=output, env=env, cwd=cwd)

    def asked(self, module, *, env=None, output=None, grace_s=0.0):
        """In place of `AskedProcess`."""
        env = os.environ if env is None else env
        if module not in MODULES or _of_imports(env) != PRELOADED_WITH:
            return AskedProcess(module, env=env, output=output, grace_s=grace_s)
        return _ForkedAsked(self._orders, module, output=output, env=env)


class HolderOfPytest(Holder):
    """One that begins at the first need, and is forked off the preloaded process."""

    def __init__(self):
        pass

    @functools.cached_property
    def _orders(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            args = (_Given(theirs.fileno()),)
            training_forks().Process(target=_hold_for_pytest, args=args, daemon=True).start()
        return ours


def _hold_for_pytest(orders):
    _forget_pytest()
    _hold(socket.socket(fileno=orders))


def _hold(orders):
    """Fork on demand, and end with the owner and with all that was forked."""
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
    if module != follower.__name__:
        _fork_what_is_started()
    if module != STAGE:  # which unblocks them itself
        signal.pthread_sigmask(signal.SIG_UNBLOCK, asked.STOPPING)
    _end(_code(_be, module, arguments))


def _be(module, arguments):
    if module == forkserver.__name__:
        forkserver.main()
    elif module == follower.__name__:
        follower.main(*arguments)
    elif module == container.__name__:
        container.serve_owner(int(arguments[0]))
    elif module == exporting.__name__:
        exporting.main(*arguments)
    elif module == inside.__name__:
        inside.serve(*map(int, arguments))
    else:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        importlib.import_module(module).main()


class _ForkedChild:
    """As `Child`."""

    def __init__(self, holder, command, pass_fds, *, output, env, cwd=None, stdin=None):
        self.returncode = None
        self._looking = threading.Lock()
        self._answers, answers = socket.socketpair()
        reads, told = os.pipe()
        self._told = os.fdopen(reads, "rb")
        order = (command, list(pass_fds), dict(env), str(cwd or os.getcwd()))
        if output is not None and not isinstance(output, int):
            output = output.fileno()
        printed = (1, 2) if output is None else (output, output)
        with answers, open(os.devnull) as nothing:
            stdin = nothing.fileno() if stdin is None else stdin
            passed = [answers.fileno(), told, stdin, *printed, *pass_fds]
            socket.send_fds(holder, [pickle.dumps(order)], passed)
        os.close(told)

    @functools.cached_property
    def pid(self):
        with self._told:
            told = self._told.read(forks.STATUS.size)
        assert told, "it ended before it could tell its id"
        return forks.STATUS.unpack(told)[0]

    def poll(self):
        with self._looking:
            if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
                self._read()
        return self.returncode

    def wait(self, timeout=None):
        with self._looking:
            if self.returncode is None:
                if not select.select([self._answers], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
                self._read()
        return self.returncode

    def _read(self):
        status = self._answers.recv(forks.STATUS.size)
        self.returncode = forks.STATUS.unpack(status)[0] if status else -signal.SIGKILL
        self._answers.close()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        with contextlib.suppress(OSError):  # it has ended
            self._answers.shutdown(socket.SHUT_WR)

    def kill_all(self):
        self.kill()
        self.wait()


class _ForkedAsked(_ForkedChild):
    """As `AskedProcess`."""

    ask, answer, _answered = AskedProcess.ask, AskedProcess.answer, AskedProcess._read

    def __init__(self, holder, module, *, output, env):
        reads, writes = os.pipe()
        theirs, stdin = os.pipe()
        self.stdin = os.fdopen(stdin, "wb")
        command = [module, str(writes)]
        super().__init__(holder, command, [writes], output=output, env=env, stdin=theirs)
        os.close(writes)
        os.close(theirs)
        self._content = b""
        self._reading = threading.Thread(target=self._answered, args=(reads,), daemon=True)
        self._reading.start()
