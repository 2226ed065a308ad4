"""Generated requests, most of them bad, all over the app."""

from __future__ import annotations

import asyncio
from random import Random

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstword.server.app import create_app
from firstword.server.settings import ServerSettings
from tests.server import hostile
from tests.server.operated import OperatedFake

APP = create_app(OperatedFake(), ServerSettings(log_level="error"))


async def answer_of(case: hostile.Case) -> httpx.Response:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case.headers.items()]
    transport = httpx.ASGITransport(APP)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(case.method, case.path, content=case.body, headers=headers)


@settings(
    max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.randoms(use_true_random=False))
def test_p27_bad_requests_are_refused_and_the_server_lives(random: Random) -> None:
    case = hostile.draw(random)
    answer = asyncio.run(answer_of(case))
    fault = hostile.fault_of(case, answer.status_code, answer.headers, answer.content)
    assert fault is None, (fault, answer.text[:300], case)


def test_the_valid_bodies_are_valid() -> None:
    for path, bodies in hostile.BODIES.items():
        for body in bodies:
            case = hostile.post("valid", path, {"model": hostile.MODEL, **body}, hostile.OK)
            answer = asyncio.run(answer_of(case))
            assert answer.status_code == 200, (path, body, answer.text)
