"""Work is ended when its client goes."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from firstword.server.disconnect import ClientGoneError, unless_gone


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def goes() -> Message:
    await asyncio.sleep(0)
    return {"type": "http.disconnect"}


def test_result_comes_through() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 5

    assert asyncio.run(unless_gone(stays, work())) == 5


def test_error_comes_through() -> None:
    async def work() -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(unless_gone(stays, work()))


def test_p26_work_is_cancelled_when_the_client_goes() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(ClientGoneError):
        asyncio.run(unless_gone(goes, work()))
    assert ended == ["cancelled"]


def test_work_is_cancelled_with_its_waiter() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        task = asyncio.create_task(unless_gone(stays, work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cancelled"]
