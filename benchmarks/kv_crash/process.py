"""Processes that are killed: at a random time, or in the middle of a certain system call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

_CALLS = ("open", "pwritev", "ftruncate", "truncate", "unlink", "rename", "replace", "mkdir")


def forked(work: Callable[[], None]) -> int:
    """Start a process that does some work; returns its id. Its status is 1 where that fails."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except Exception as error:
        os.write(2, f"{error!r}\n".encode())
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    """Wait for a process; returns its exit status, -9 where it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(work: Callable[[], None], seconds: float) -> int:
    """Do work in a process and kill it after some time; returns its exit status."""
    pid = forked(work)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return ended(pid)


def killed_in_call(work: Callable[[], None], number: int) -> int:
    """Do work in a process that dies in the middle of a call that changes files.

    Args:
        work: what to do.
        number: of the call, from 0 on.

    Returns:
        Its exit status: 0 where it made fewer calls.
    """

    def dying() -> None:
        _die_in(number)
        work()

    return ended(forked(dying))


def _die_in(number: int) -> None:
    """Replace the calls that change files by ones that count, and kill in the one of a number."""
    made = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            if call is opened and not arguments[1] & (os.O_CREAT | os.O_RDWR | os.O_WRONLY):
                return call(*arguments, **options)
            made += 1
            if made > number:
                if call is pwritev:  # half of it has been written
                    fd, parts, offset = arguments
                    data = b"".join(parts)
                    pwritev(fd, [data[: len(data) // 2]], offset)
                elif number % 2:  # done, and then killed
                    call(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapped

    opened, pwritev = os.open, os.pwritev
    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name)))
