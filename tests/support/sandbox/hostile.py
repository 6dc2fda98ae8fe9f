"""Programs that mean harm, and what must become of each.

Run as a script, by a user who has nothing but the standard library and bubblewrap:
`python hostile.py WAY SECRETS`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from mortal_steps.sandbox.base import ExecutionResult, Limits, Program
from mortal_steps.sandbox.box import Way, made_folders, own_interpreter
from mortal_steps.sandbox.executors import local_pool
from mortal_steps.sandbox.pool import Row

LIMITS = Limits(
    timeout=0.5,
    wall_timeout=2.0,
    memory_mb=256,
    processes=16,
    tmp_mb=8,
    open_files=32,
    output_kb=64,
)
AFTERWARDS = """
import os
pids = [name for name in os.listdir("/proc") if name.isdigit()]
print(len(pids), os.listdir("/tmp"), "as ever")
"""
"""Runs behind each in the same box, where only the server must be left."""

BEFORE = Program(
    code="# 8731-code\nprint('8731-' + 'stdout', input())", stdin="8731-stdin", limits=LIMITS
)
"""Runs before each in the same box; nobody must be able to read of it."""

SCAN = """
import re
# sample-own
def found(pattern):
    count = 0
    with open("/proc/self/mem", "rb", 0) as memory, open("/proc/self/maps") as maps:
        for line in maps:
            span, may, *_ = line.split()
            if "r" in may and "[v" not in line:
                start, end = (int(bound, 16) for bound in span.split("-"))
                memory.seek(start)
                count += len(re.findall(pattern, memory.read(end - start)))
    return count
if not found(b"sample-(?:own)"):
    print("BREACH the scan finds nothing at all")
if found(b"8731-(?:code|stdin|stdout)"):
    print("BREACH")
"""
"""Looks for `BEFORE` in its memory, a copy of the server's."""

REFUSED = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, function, *arguments):
    try:
        done = function(*arguments)
    except OSError:
        return
    if isinstance(done, int) and done < 0 and not isinstance(done, bool):
        return
    print("BREACH", what, done)
"""
"""`refused` prints a breach if what it calls works."""


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A program, and how it ends: by one of the limits, or with one of the exit codes."""

    tries: str
    code: str
    limit: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()

    def wrong(self, result: ExecutionResult, after: ExecutionResult) -> Iterator[str]:
        """What should not be as it is."""
        if (
            "BREACH" in result.stdout
            or "8731-" in result.stdout
            or "SECRET" in result.stdout + result.stderr
        ):
            yield f"{self.tries}: {result.stdout[-500:]} {result.stderr[-500:]}"
        exit_codes = self.exit_codes or (() if self.limit else (0,))
        alone = result.limit is None and result.exit_code in exit_codes
        if not alone and result.limit not in self.limit:
            yield f"{self.tries}: {result}"
        if after.stdout != "2 [] as ever\n":
            yield f"after {self.tries}: {after}"


HOSTILE = (
    Hostile(tries="an endless loop", code="while True: pass", limit=("cpu_s",)),
    Hostile(tries="sleeping for ever", code="import time; time.sleep(1e6)", limit=("wall_s",)),
    Hostile(
        tries="a fork bomb",
        code="import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        limit=("cpu_s", "wall_s", "processes"),
    ),
    Hostile(
        tries="a thousand threads",
        code="import threading, time\nfor _ in range(1000):\n"
        "    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        exit_codes=(1,),
    ),
    Hostile(tries="allocating 10 GB", code="held = bytearray(10**10)", exit_codes=(1,)),
    Hostile(
        tries="10 GB in many processes",
        code="import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        held = bytearray(b'x') * (120 * 10**6)\n        time.sleep(9)\nos.wait()",
        limit=("memory_mb",),
    ),
    Hostile(
        tries="shared memory in many processes",
        code="import mmap, os, time\nfor _ in range(4):\n    if os.fork() == 0:\n"
        "        held = mmap.mmap(-1, 90 * 2**20)\n        held.write(b'x' * (45 * 2**20))\n"
        "        held.write(b'x' * (45 * 2**20))\n        time.sleep(9)\nos.wait()",
        limit=("memory_mb",),
    ),
    Hostile(
        tries="staying when memory runs out",
        code=REFUSED
        + """
refused("oom_score_adj", open, "/proc/self/oom_score_adj", "w")
print("" if open("/proc/self/oom_score_adj").read() == "1000\\n" else "BREACH it stays")
""",
    ),
    Hostile(tries="reading what ran before", code=SCAN),
    Hostile(
        tries="writing 10 GB",
        code="""
n = 0
try:
    for name in range(100):
        with open(f"/tmp/{name}", "wb") as file:
            for _ in range(100):
                n += file.write(b"x" * 10**6)
                file.flush()
except OSError:
    print("BREACH" if n > 9 * 2**20 else n)
""",
    ),
    Hostile(
        tries="a million files",
        code="n = 0\ntry:\n    for n in range(10**6): open(f'/tmp/{n}', 'w').close()\n"
        "except OSError: pass\nprint('BREACH' if n > 5000 else n)",
    ),
    Hostile(
        tries="deleting files",
        code=REFUSED
        + """
import shutil, sys
for top in ("/usr/bin", "/etc", "/mortal", "/dev"):
    before = os.listdir(top)
    shutil.rmtree(top, ignore_errors=True)
    print("" if os.listdir(top) == before else f"BREACH {top}", end="")
for name in ("/x", "/usr/x", "/mortal/inside/server.py", "/dev/x", sys.path[1] + "/x"):
    refused(name, open, name, "w")
""",
    ),
    Hostile(
        tries="reading the user's files",
        code=REFUSED
        + """
for secret in ({secrets!r}, os.path.expanduser("~root/.bashrc"), "/etc/passwd", "/etc/shadow",
               *{hidden!r}, "/proc/1/root/etc", "/proc/1/cwd/x"):
    refused(secret, os.listdir if os.path.isdir(secret) else open, secret)
""",
    ),
    Hostile(
        tries="reading environment and /proc of others",
        code=REFUSED
        + """
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
print("BREACH" if len(pids) > 2 else "", os.environ, open("/proc/self/environ").read())
for name in ("environ", "mem", "maps", "cwd", "exe", "fd", "map_files", "stack", "syscall"):
    path = f"/proc/1/{name}"
    refused(path, os.readlink if name in ("cwd", "exe") else
            os.listdir if name in ("fd", "map_files") else open, path)
for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
    refused(path, open, path, "w")
refused("/proc/kcore", lambda: open("/proc/kcore", "rb").read(1))
""",
    ),
    Hostile(
        tries="opening sockets",
        code=REFUSED
        + """
refused("internet", socket.create_connection, ("1.1.1.1", 53), 0.2)
refused("loopback", socket.create_connection, ("127.0.0.1", {port}), 0.2)
refused("abstract", socket.socket(socket.AF_UNIX).connect, "\\0{abstract}")
for family in (socket.AF_VSOCK, socket.AF_NETLINK, socket.AF_PACKET, 38):
    refused(family, socket.socket, family, socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM)
""",
    ),
    Hostile(
        tries="killing the parent",
        code="import os, signal\nfor one in range(1, 65):\n"
        "    try: os.kill(os.getppid(), one)\n    except OSError: pass\n"
        "os.kill(-1, signal.SIGKILL)",
        exit_codes=(1,),
    ),
    Hostile(
        tries="crippling the server",
        code=REFUSED
        + """
import resource
refused("prlimit", resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0))
refused("priority", os.setpriority, os.PRIO_PROCESS, 1, 19)
refused("affinity", os.sched_setaffinity, 1, [0])
refused("ptrace", libc.ptrace, 16, 1, 0, 0)
refused("pidfd_getfd", lambda: libc.syscall(438, os.pidfd_open(1), 3, 0))
refused("process_vm_readv", libc.process_vm_readv, 1, 0, 0, 0, 0, 0)
""",
    ),
    Hostile(
        tries="forging answers",
        code="""
import os
for one in range(3, 1024):
    try:
        print("BREACH", os.write(one, b'\\0\\0\\0\\2{}'))
    except OSError:
        pass
os.write(1, b'\\0\\0\\0\\2{}')
os.closerange(0, 1024)
""",
    ),
    Hostile(
        tries="new namespaces, mounts, uncounted memory",
        code=REFUSED
        + """
refused("user namespace", libc.unshare, 0x10000000)
refused("clone", libc.syscall, 56, 0x10000000 | 17, 0, 0, 0, 0)
refused("mount", libc.mount, b"t", b"/tmp", b"tmpfs", 0, 0)
refused("umount", libc.umount2, b"/tmp", 2)
refused("chroot", os.chroot, "/tmp")
refused("memfd", os.memfd_create, "x")
refused("shm", libc.shmget, 0, 10**9, 0o1600)
refused("setuid", os.setuid, 0)
""",
    ),
    Hostile(
        tries="printing without end", code="while True: print('x' * 1000)", limit=("output_kb",)
    ),
    Hostile(
        tries="ignoring every signal",
        code="import signal\nfor one in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(one, signal.SIG_IGN)\nwhile True: pass",
        limit=("cpu_s",),
    ),
    Hostile(
        tries="daemonising",
        code="import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        while True: time.sleep(0.01)\n    os._exit(0)\nos.wait()",
    ),
    Hostile(tries="os._exit", code="import os; print('lost'); os._exit(0)"),
    Hostile(
        tries="exec of a shell",
        code="import os; os.execv('/bin/sh', ['sh', '-c', 'while :; do :; done'])",
        limit=("cpu_s",),
    ),
    Hostile(
        tries="symlink games",
        code=REFUSED
        + """
os.symlink("/proc/1/root", "/tmp/root"); os.symlink("/usr/bin", "/tmp/bin")
os.symlink("/", "/tmp/top"); os.symlink("/tmp/loop", "/tmp/loop")
refused("through a link", open, "/tmp/bin/x", "w")
refused("through the server", os.listdir, "/tmp/root/tmp")
refused("loop", open, "/tmp/loop")
os.mkdir("/tmp/deep"); os.chmod("/tmp/deep", 0)
os.chdir("/tmp")
for _ in range(500): os.mkdir("d"); os.chdir("d")
""",
    ),
    Hostile(
        tries="huge recursion",
        code="import sys\nsys.setrecursionlimit(10**9)\ndef f(): return (lambda: f())() + 1\nf()",
        exit_codes=(-11, 1),
        limit=("cpu_s",),
    ),
    Hostile(
        tries="filling the output pipe and sleeping",
        code="import time; print('x' * 60000, flush=True); time.sleep(1e6)",
        limit=("wall_s",),
    ),
    Hostile(tries="SIGKILL to itself", code="import os; os.kill(os.getpid(), 9)", exit_codes=(-9,)),
    Hostile(tries="stopping itself", code="import os; os.kill(os.getpid(), 19)", limit=("wall_s",)),
    Hostile(tries="no Python at all", code="I cannot help with that \0", exit_codes=(1,)),
)


def run_all(way: Way, secrets: str, port: int, abstract: str) -> list[str]:
    """What is wrong, after all programs have run in one pool."""
    pool = local_pool(way, 2)
    after = Program(code=AFTERWARDS, limits=LIMITS)
    rows, made = [], made_folders(own_interpreter())  # Python may be installed in a home
    hidden = [top for top in ("/home", "/var", "/sys", "/run") if top not in made]
    for each in HOSTILE:
        code = each.code.replace("{secrets!r}", repr(secrets)).replace("{port}", str(port))
        code = code.replace("{hidden!r}", repr(hidden)).replace("{abstract}", abstract)
        program = Program(code=code, limits=LIMITS)
        rows.append(Row(programs=[BEFORE, program, after]))
    try:
        results = pool.run_rows(rows)
    finally:
        pool.close()
    both = [results_of_one[1:] for results_of_one in results]
    return [line for each, two in zip(HOSTILE, both, strict=True) for line in each.wrong(*two)]


if __name__ == "__main__":
    _, way, secrets, port, abstract = sys.argv
    print("\n".join(run_all(way, secrets, int(port), abstract)))  # type: ignore[arg-type]  # noqa: T201
