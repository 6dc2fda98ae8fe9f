"""The process of one program: it gives up its privileges, then runs the program."""

from __future__ import annotations

import atexit
import gc
import linecache
import math
import os
import random
import resource
import signal
import site
import sys
import threading
import traceback
import types
from typing import Any, NoReturn, TextIO, cast

from . import kernel

NAME = "program.py"
MB = 2**20
CONFINED = b"+"


def become(
    code: int,
    limits: dict[str, Any],
    descriptors: tuple[int, int, int, int],
    start: dict[str, Any],
) -> NoReturn:
    """Run the source text in the file `code`, in a process that was forked for it. Does not return.

    `code` is a descriptor. `descriptors` are the program's stdin, stdout and stderr, and a pipe to
    which `CONFINED` is written when the process has given up its privileges. `start` is the first
    message to the server.
    """
    exit_code = 1
    try:
        with open(code, "rb", closefd=False) as file:
            source = file.read().decode("utf-8", "surrogatepass")
        _confine(limits, descriptors, start)
        exit_code = _run(source)
    except BaseException:  # noqa: BLE001 - not confined: the server reports what is printed here
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(exit_code)


def _confine(
    limits: dict[str, Any], descriptors: tuple[int, int, int, int], start: dict[str, Any]
) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)  # none is below 3, so none is overwritten before it is copied
    os.closerange(4, 1 << 20)  # above all the connection to the owner
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shut_in = start["enclosure"] != "bare"
    _set_limits(limits, shut_in=shut_in)
    if start["uid"] is not None:
        os.setgroups([])
        os.setresgid(start["uid"], start["uid"], start["uid"])
        os.setresuid(start["uid"], start["uid"], start["uid"])
    if shut_in:
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # the server hid its memory; a program sees its own
    if start["filter"]:
        kernel.install_filter(bytes.fromhex(start["filter"]))
    os.write(3, CONFINED)
    os.close(3)


def _set_limits(limits: dict[str, Any], *, shut_in: bool) -> None:
    values = {
        resource.RLIMIT_CPU: 2 * math.ceil(limits["cpu_s"]) + 1,  # the server is more precise
        resource.RLIMIT_AS: limits["memory_mb"] * MB,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["tmp_mb"] * MB,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if shut_in:  # otherwise the limit would count all processes of the user
        values[resource.RLIMIT_NPROC] = limits["processes"]
    for which, value in values.items():
        resource.setrlimit(which, (value, value))


def _run(source: str) -> int:
    """Run the program. Returns its exit code after it has ended with all that it left open."""
    sys.stdin, sys.stdout = _text(0, "r", "surrogateescape"), _text(1, "w", "surrogateescape")
    sys.stderr = _text(2, "w", "backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    sys.argv = [NAME]
    random.seed(0)  # the same on every lane
    for set_builtins in (site.setquit, site.setcopyright, site.sethelper):
        set_builtins()  # exit() and others, which -S leaves out
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __file__=NAME)
    sys.modules["__main__"] = main
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    try:
        exec(compile(source, NAME, "exec"), main.__dict__)
        code = 0
    except SystemExit as ended:
        code = _exit_code(ended.code)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its own
        _print_error(error)
        code = 1
    try:
        _end(main)
    except BaseException as error:  # noqa: BLE001 - as above
        _print_error(error)
        code = code or 120
    return code


def _end(main: types.ModuleType) -> None:
    """End as an interpreter does, which also writes what files hold that the program left open."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush()
    sys.stdout, sys.stderr = cast(TextIO, sys.__stdout__), cast(TextIO, sys.__stderr__)
    main.__dict__.clear()
    gc.collect()
    _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def _text(descriptor: int, mode: str, errors: str) -> TextIO:
    return cast(TextIO, open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False))


def _exit_code(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF if abs(value) < 2**63 else 255
    sys.stderr.write(f"{value}\n")
    return 1


def _print_error(error: BaseException) -> None:
    """Print an error as the interpreter does, without the frames of this module."""
    own = error.__traceback__.tb_next if error.__traceback__ else None
    traceback.print_exception(type(error), error, own)
