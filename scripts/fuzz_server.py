"""Sends generated requests to a server and checks every answer: run it with scripts/fuzz_server.

A third of the bodies come from schemathesis, which reads our OpenAPI page; the rest from
tests/server/hostile.py. Bodies of 50 MB come besides. The same seed gives the same requests.
Not here: the same in the suite, a few hundred requests without a socket (tests/server).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode

from tests.server import hostile

T = TypeVar("T")

PYTHON = ".venv/bin/python"
FAKE = json.dumps({"script": {"text": "Hello"}, "settings": {"log_level": "error"}})
FAKE_SERVER = (PYTHON, "-m", "tests.server.serving", FAKE)
REAL_MODEL = "smollm2:135m"
REAL_SERVER = (PYTHON, "-m", "firstword", "serve", REAL_MODEL, "--port", "0")
BATCH = 100
MAX_NEW_TOKENS = 8
HUGE_BYTES = 50_000_000
MEMORY_SLACK_KB = 64 * 1024


@dataclass
class Server:
    """A server in a process of its own.

    Args:
        command: starts it; it prints its URL.
    """

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        self._log = Path(".fuzz/server.log").open("wb")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self._log)
        self.url = self._await_url()

    def _await_url(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = [word for word in line.decode().split() if word.startswith("http://")]
            if words:
                return words[0].rstrip(",.")
        raise SystemExit("the server did not start: see .fuzz/server.log")

    @property
    def memory_kb(self) -> int:
        """Resident memory of the HTTP process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    @property
    def num_files(self) -> int:
        """Open files and sockets of the HTTP process."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def end(self) -> int:
        """Tell it to end; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return self.process.wait(60)


@dataclass
class Tally:
    """What came of the requests sent so far."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, case: hostile.Case, answer: httpx.Response, url: str) -> None:
        """Check one answer."""
        self.statuses[case.what, answer.status_code] += 1
        fault = hostile.fault_of(case, answer.status_code, answer.headers, answer.content)
        if fault is not None:
            self.faults.append(f"{case.what}: {fault}\n  {case.curl(url)}")

    @property
    def num_requests(self) -> int:
        """Sent so far."""
        return sum(self.statuses.values())

    def by_status(self) -> dict[int, int]:
        """How many answers had which status."""
        counts: Counter[int] = Counter()
        for (_, status), count in self.statuses.items():
            counts[status] += count
        return dict(sorted(counts.items()))


def send(client: httpx.Client, case: hostile.Case, tally: Tally) -> None:
    """Send one request and check its answer; no answer at all is a fault too."""
    pieces = iter([case.body[:7], case.body[7:]]) if case.chunked else case.body
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case.headers.items()]
    try:
        answer = client.request(case.method, case.path, content=pieces, headers=headers)
    except httpx.HTTPError as error:
        tally.faults.append(f"{case.what}: {error!r}\n  {case.curl(str(client.base_url))}")
    else:
        tally.add(case, answer, str(client.base_url))


def from_page(page: dict[str, object], count: int, number: int) -> Iterator[hostile.Case]:
    """Requests as the OpenAPI page describes them, and others that it forbids.

    Args:
        page: the OpenAPI page.
        count: how many, about.
        number: the seed.
    """
    schema = schemathesis.openapi.from_dict(page)
    operations = [found.ok() for found in schema.get_all_operations()]
    shares = [
        (op, mode) for op in operations for mode in GenerationMode if mode.is_positive or op.body
    ]
    for operation, mode in shares:
        answers = page["paths"][operation.path][operation.method]["responses"]  # type: ignore[index]
        documented = frozenset(int(status) for status in answers if int(status) < 500) | {404, 405}
        for case in drawn(operation.as_strategy(mode), -(-count // len(shares)), number):
            told = case.as_transport_kwargs(base_url="http://localhost")
            target = httpx.Request(case.method, told["url"], params=told.get("params"))
            raw = told.get("data")
            if "json" in told:
                raw = json.dumps(told["json"])
            body = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw or b""
            headers = {"content-type": case.media_type} if case.media_type else {}
            path = target.url.raw_path.decode()
            yield hostile.Case(
                f"page, {mode}", path, body, documented, headers, case.method.upper()
            )


def drawn(strategy: SearchStrategy[T], count: int, number: int) -> list[T]:
    """Examples of a strategy, the same for the same seed."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(example: T) -> None:
        found.append(example)

    keep()
    return found


def with_served_model(case: hostile.Case, random: Random, model: str) -> hostile.Case:
    """Half of the bodies with the name of the served model, so that they get further."""
    body = _object_of(case)
    if body is None or random.random() < 0.5 or "model" not in body:
        return case
    return replace(case, body=json.dumps(body | {"model": model}).encode())


def shortened(case: hostile.Case) -> hostile.Case:
    """With answers of a few tokens, where the body is one that may be answered."""
    body = _object_of(case)
    if body is None or case.statuses.isdisjoint(hostile.OK):
        return case
    if case.path in (hostile.CHAT, hostile.TEXT, hostile.MESSAGES):
        wanted = body.get("max_tokens")
        if not isinstance(wanted, int) or wanted > MAX_NEW_TOKENS:
            body["max_tokens"] = MAX_NEW_TOKENS
            body.pop("max_completion_tokens", None)
    return replace(case, body=json.dumps(body).encode())


def _object_of(case: hostile.Case) -> dict[str, object] | None:
    try:
        body = json.loads(case.body)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def huge_bodies() -> Iterator[hostile.Case]:
    """50 MB, with and without their length."""
    for path in hostile.BODIES:
        body = b'{"model": "' + b"x" * HUGE_BYTES + b'"}'
        for chunked in (False, True):
            headers = {"content-type": "application/json"}
            statuses = frozenset({413})
            yield hostile.Case("50 MB", path, body, statuses, headers, chunked=chunked)


def fuzz(command: tuple[str, ...], model: str, count: int, number: int, real: bool) -> list[str]:
    """Send requests to a server of their own; returns the faults found."""
    server, tally, start = Server(command), Tally(), time.monotonic()
    random = Random(number)
    with httpx.Client(base_url=server.url, timeout=120) as client:
        page = client.get("/openapi.json").json()
        cases = [
            hostile.draw(Random(f"{number}-{index}"), model) for index in range(count * 2 // 3)
        ]
        cases += [with_served_model(c, random, model) for c in from_page(page, count // 3, number)]
        if real:
            cases = [shortened(case) for case in cases][:count]
        random.shuffle(cases)
        for case in cases[:BATCH]:  # what is made once is made before memory is looked at
            send(client, case, tally)
        memory, files = server.memory_kb, server.num_files
        for case in cases[BATCH:]:
            send(client, case, tally)
        if not real:
            for case in huge_bodies():
                send(client, case, tally)
        grown, files = server.memory_kb - memory, server.num_files - files
        is_alive = client.get("/ready").status_code == 200
    status = server.end()
    if grown > MEMORY_SLACK_KB:
        tally.faults.append(f"memory grew by {grown} kB")
    if files > 1 or not is_alive or status != 0:
        tally.faults.append(f"{files} more open files, ready: {is_alive}, exit status {status}")
    for what, answer in sorted(tally.statuses):
        print(f"  {what:20} {answer} {tally.statuses[what, answer]:6}")
    seconds = time.monotonic() - start
    print(
        f"{model}, seed {number}: {tally.num_requests} requests in {seconds:.0f} s, by status "
        f"{tally.by_status()}, {len(tally.faults)} faults, memory {grown:+} kB, files {files:+}",
        flush=True,
    )
    return tally.faults


def main() -> int:
    """Both servers; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz_server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 requests, and 30 to SmolLM2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=("both", "fake", "real"), default="both")
    told = parser.parse_args()
    counts = (1_000, 30) if told.quick else (10_000, 200)
    faults: list[str] = []
    if told.model != "real":
        faults += fuzz(FAKE_SERVER, hostile.MODEL, counts[0], told.seed, real=False)
    if told.model != "fake":
        faults += fuzz(REAL_SERVER, REAL_MODEL, counts[1], told.seed, real=True)
    for fault in faults[:50]:
        print(fault[:4000])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
