"""Fork what a run starts in place of interpreters: the process from which it forks its workers, its
other workers, the hosts of users' code, and the stages of recipes."""

import functools
import os
import socket
import subprocess
import sys

from mortal_steps.environments.processes.host import SAME_SETS
from mortal_steps.policy.ranks import machines
from mortal_steps.system import asked
from mortal_steps.system.asked import AskedProcess
from mortal_steps.system.child import Child
from tests.support.forking.children import ForkedAsked, ForkedChild
from tests.support.forking.environment import PRELOADED_WITH, of_imports
from tests.support.forking.held import FOLLOWER, MODULES, hold
from tests.support.forking.interpreter import forget_pytest
from tests.support.forking.patches import fork_by
from tests.support.paths import ROOT
from tests.support.training_forks import Given, check_preloaded, training_forks


def fork_ranks():
    """Have this process, which has done nothing, fork the ranks that it starts."""
    machines.Child = Holder().child


def fork_what_is_started():
    """Have this process, which has done nothing, fork whatever it starts of `MODULES`, ranks
    apart."""
    holder = Holder()
    fork_by(holder, LIGHT, setattr)
    asked.AskedProcess = holder.asked


class Holder:
    """A process that nothing has happened to. Off it processes are forked that are interpreters
    elsewhere, `python -P -m MODULE ARGUMENT...` of `MODULES`."""

    def __init__(self):
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if os.fork() == 0:
                self._orders.close()
                hold(theirs, _begin)

    def child(
        self, command, *, pass_fds, output=None, env=None, cwd=None, scratch="", continues=False
    ):
        """In place of `Child`. An interpreter of its own where it is another, or where libraries
        read something else when they are imported."""
        env = os.environ if env is None else env
        if command[0] != sys.executable or of_imports(env) != PRELOADED_WITH:
            return Child(
                command,
                output=output,
                pass_fds=pass_fds,
                env=env,
                cwd=cwd,
                scratch=scratch,
                continues=continues,
            )
        return ForkedChild(self._orders, command[3:], pass_fds, output=output, env=env, cwd=cwd)

    def asked(self, module, *, env=None, output=None, grace_s=0.0):
        """In place of `AskedProcess`."""
        env = os.environ if env is None else env
        if module not in MODULES or of_imports(env) != PRELOADED_WITH:
            return AskedProcess(module, env=env, output=output, grace_s=grace_s)
        return ForkedAsked(self._orders, module, output=output, env=env)


class HolderOfPytest(Holder):
    """One that begins at the first need, and is forked off the preloaded process."""

    def __init__(self):
        pass

    @functools.cached_property
    def _orders(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            args = (Given(theirs.fileno()), LIGHT.given())
            training_forks().Process(target=_hold_for_pytest, args=args, daemon=True).start()
        return ours


class LightHolder(Holder):
    """One that has imported what hosts of environments need, and no torch: they fork themselves for
    each episode, which takes longer the more they have imported. Pytest's process and all that it
    has forked share one, which begins at the first need."""

    def __init__(self):
        pass

    @functools.cached_property
    def _orders(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.forking.light", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **SAME_SETS}, pass_fds=[theirs.fileno()]
            )
        return ours

    def given(self):
        """Return it for `take` in another process."""
        return Given(self._orders.fileno())

    def take(self, orders):
        """Be the one that another process has given."""
        self._orders = socket.socket(fileno=orders)


LIGHT = LightHolder()


def _hold_for_pytest(orders, light):
    check_preloaded()
    forget_pytest()
    LIGHT.take(light)
    hold(socket.socket(fileno=orders), _begin)


def _begin(module):
    if module != FOLLOWER:
        fork_what_is_started()
