"""Notices that a client has gone, so that nobody computes for it.

Not here: streams, which notice it themselves (sse).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

from firstword.errors import FirstwordError

CLIENT_GONE_STATUS = 499
"""What logs say of a request whose client has gone; nobody receives it."""

T = TypeVar("T")


class ClientGoneError(FirstwordError):
    """The client closed the connection before its answer."""


async def until_gone(receive: Receive) -> None:
    """Wait until a client has gone; its body must have been read.

    Args:
        receive: of the ASGI request.
    """
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[object, object, T]) -> T:
    """The result of `work`, which is cancelled when the client goes.

    Args:
        receive: of the ASGI request, whose body was read.
        work: to be run.

    Raises:
        ClientGoneError: the client went first.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished = task.done()
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
    if not finished:
        raise ClientGoneError("the client closed the connection")
    return task.result()
