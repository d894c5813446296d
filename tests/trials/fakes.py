"""A job that misbehaves in the way it is told. Functions here are closures: they travel by value,
so workers need not be able to import the tests."""

from __future__ import annotations

from pruner_ms.trials.jobs import PoolOptions
from pruner_ms.types import FailureKind


def options(**changes):
    defaults = {
        "max_workers": 2,
        "timeout_sec": 20.0,
        "maximum_uses": None,
        "memory_limit_bytes": None,
        "on_error": FailureKind.BUILD,
        "on_timeout": FailureKind.BUILD_TIMEOUT,
    }
    return PoolOptions(**{**defaults, **changes})


def make_factory():
    """A factory for `Pool`: its handler does what its first argument says."""

    def factory():
        import ctypes
        import mmap
        import os
        import signal
        import subprocess
        import sys
        import time

        def eat(gib):
            held = []
            for _ in range(int(gib * 16)):
                held.append(bytearray(64 << 20))
            return len(held)

        def share(gib):  # shared pages are not private memory: only the watch can see them
            area = mmap.mmap(-1, int(gib * (1 << 30)))
            for start in range(0, len(area), 1 << 20):
                area[start : start + (1 << 20)] = b"x" * (1 << 20)
            time.sleep(20)

        def garbage():
            for fd in range(3, 64):
                try:
                    os.write(fd, b"\xff" * 4096)
                except OSError:
                    continue
            time.sleep(20)

        def chatter():
            print("noise\n" * 200_000, flush=True)
            sys.stderr.write("more noise\n" * 200_000)
            os.write(1, b"\x00\xff" * 100_000)
            return "said"

        def spawn():
            child = subprocess.Popen(["sleep", "60"], start_new_session=True)
            with open(os.environ["SPAWNED"], "w") as out:
                out.write(str(child.pid))
            time.sleep(60)

        def forked_holder():
            if os.fork() == 0:
                time.sleep(60)
            os._exit(7)

        def leave_a_child():
            child = os.fork()
            if child == 0:
                os.closerange(3, 256)  # it would end with the pipe that tells that the tuner has
                time.sleep(60)
            with open(os.environ["SPAWNED"], "w") as out:
                out.write(str(child))
            os._exit(7)

        ways = {
            "leave a child": leave_a_child,
            "pid": os.getpid,
            "echo": lambda value: value,
            "sleep": time.sleep,
            "raise": lambda: 1 // 0,
            "abort": os.abort,
            "segfault": lambda: ctypes.string_at(0),
            "exit": lambda: os._exit(0),
            "sys.exit": lambda: sys.exit(3),
            "interrupt": lambda: signal.raise_signal(signal.SIGINT),
            "loop": lambda: [None for _ in iter(int, 1)],
            "hold the lock": lambda: ctypes.PyDLL(None).sleep(60),
            "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "eat": eat,
            "share": share,
            "garbage": garbage,
            "chatter": chatter,
            "spawn": spawn,
            "forked holder": forked_holder,
            "close everything": lambda: (os.closerange(0, 256), time.sleep(20)),
            "close output": lambda: (os.close(1), os.close(2), 5)[2],
            "unsendable": object,
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "kept": lambda: getattr(sys, "_kept", None),
            "keep": lambda value: setattr(sys, "_kept", value),
            "variable": os.environ.get,
            "imported": lambda name: name in sys.modules,
            "parent": os.getppid,
            "threads": lambda: len(os.listdir(f"/proc/{os.getppid()}/task")),
        }

        def handle(what, *args):
            return ways[what](*args)

        return handle

    return factory
