"""What is asked of a server, and when: phases of load as plain values; nothing is sent here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice

from firstword.bench.serving.prompts import PromptMaker

HEAD_START_SECONDS = 1.0
"""The chats and the flood are under way when the other comes beside them."""


@dataclass(frozen=True)
class Conversation:
    """What one user says; each turn goes with all before it, the model's own answers included.

    Args:
        turns: in order.
        max_tokens: of each answer.
        key: which API key is used, counted from 0.
        leave_after: seconds after which the user goes away; None to stay.
    """

    turns: tuple[str, ...]
    max_tokens: int
    key: int = 0
    leave_after: float | None = None


@dataclass(frozen=True)
class ClosedLoop:
    """So many clients, each of which asks again when it is answered."""

    clients: int


@dataclass(frozen=True)
class OpenLoop:
    """Conversations begin as a Poisson process, answered or not.

    Args:
        rate: conversations per second, on average.
        seed: of the arrivals.
    """

    rate: float
    seed: int

    def arrivals(self) -> Iterator[float]:
        """Seconds from the beginning, without end."""
        generator, now = random.Random(self.seed), 0.0
        while True:
            now += generator.expovariate(self.rate)
            yield now


@dataclass(frozen=True)
class Traffic:
    """One kind of load.

    Args:
        group: what its requests are reported under.
        conversations: may be without end if it is background.
        arrival: when they begin.
        background: whether it lasts as long as the phase's other traffic and then stops.
        delay: seconds before it begins.
    """

    group: str
    conversations: Iterable[Conversation]
    arrival: ClosedLoop | OpenLoop
    background: bool = False
    delay: float = 0.0


@dataclass(frozen=True)
class Phase:
    """Traffic that runs at the same time."""

    traffic: tuple[Traffic, ...]


@dataclass(frozen=True)
class Sizes:
    """How much of what.

    Args:
        requests: in all, or of the traffic that the workload is about.
        input_tokens: of a prompt, or of what is said in a turn.
        output_tokens: of each answer.
        concurrency: clients at once, in a closed loop.
        rate: conversations per second in an open loop; None for a closed one.
        prefix_tokens: shared by all prompts, in `shared-prefix`.
        turns: of a conversation, in `multi-turn`.
        long_tokens: of the long prompt, in `long-prompt`.
        leave_seconds: clients go away within this time, in `leaving`.
        seed: of prompts and arrivals.
    """

    requests: int = 64
    input_tokens: int = 150
    output_tokens: int = 64
    concurrency: int = 16
    rate: float | None = None
    prefix_tokens: int = 1000
    turns: int = 4
    long_tokens: int = 4000
    leave_seconds: float = 2.0
    seed: int = 0
    arrival: ClosedLoop | OpenLoop = field(init=False)

    def __post_init__(self) -> None:
        loop = ClosedLoop(self.concurrency) if self.rate is None else OpenLoop(self.rate, self.seed)
        object.__setattr__(self, "arrival", loop)


Workload = Callable[[Sizes, PromptMaker], list[Phase]]


def distinct(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """Prompts that have nothing in common."""
    prompts = (make.prompt(sizes.input_tokens) for _ in range(sizes.requests))
    return [_phase(sizes, "distinct", ((prompt,) for prompt in prompts))]


def shared_prefix(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """Prompts that begin alike and have tails of their own."""
    prefix = make.prefix(sizes.prefix_tokens)
    prompts = (make.after(prefix, sizes.input_tokens) for _ in range(sizes.requests))
    return [_phase(sizes, "shared-prefix", ((prompt,) for prompt in prompts))]


def multi_turn(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """Conversations: `requests` counts turns, and the last conversation may be cut short."""
    conversations = []
    for left in range(sizes.requests, 0, -sizes.turns):
        later = [make.turn(sizes.input_tokens) for _ in range(min(left, sizes.turns) - 1)]
        conversations.append((make.prompt(sizes.input_tokens), *later))
    return [_phase(sizes, "multi-turn", conversations)]


def long_prompt(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """Short chats alone, a long prompt alone, then the long prompt beside the chats."""
    loop = ClosedLoop(sizes.concurrency)

    def chats() -> Iterator[Conversation]:
        return (
            Conversation((make.prompt(sizes.input_tokens),), sizes.output_tokens) for _ in count()
        )

    def long() -> list[Conversation]:
        return [Conversation((make.prompt(sizes.long_tokens),), sizes.output_tokens)]

    alone = Traffic("chats alone", islice(chats(), sizes.requests), loop)
    beside = Traffic("chats beside it", chats(), loop, background=True)
    late = Traffic("long beside them", long(), ClosedLoop(1), delay=HEAD_START_SECONDS)
    return [
        Phase((alone,)),
        Phase((Traffic("long alone", long(), ClosedLoop(1)),)),
        Phase((beside, late)),
    ]


def two_keys(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """One client of the first key alone, then beside a flood from the second key."""

    def said(key: int) -> Iterator[Conversation]:
        return (
            Conversation((make.prompt(sizes.input_tokens),), sizes.output_tokens, key)
            for _ in count()
        )

    one, many = ClosedLoop(1), ClosedLoop(sizes.concurrency)
    alone = Traffic("alone", islice(said(0), sizes.requests), one)
    flood = Traffic("flood", said(1), many, background=True)
    beside = Traffic(
        "beside a flood", islice(said(0), sizes.requests), one, False, HEAD_START_SECONDS
    )
    return [Phase((alone,)), Phase((flood, beside))]


def leaving(sizes: Sizes, make: PromptMaker) -> list[Phase]:
    """Clients that stay, beside as many that go away before they are answered."""
    patience = random.Random(sizes.seed)

    def impatient() -> Iterator[Conversation]:
        for _ in count():
            after = patience.uniform(0, sizes.leave_seconds)
            prompt = make.prompt(sizes.input_tokens)
            yield Conversation((prompt,), sizes.output_tokens, leave_after=after)

    prompts = (make.prompt(sizes.input_tokens) for _ in range(sizes.requests))
    (staying,) = _phase(sizes, "staying", ((prompt,) for prompt in prompts)).traffic
    gone = Traffic("leaving", impatient(), sizes.arrival, background=True)
    return [Phase((staying, gone))]


WORKLOADS: Mapping[str, Workload] = {
    "distinct": distinct,
    "shared-prefix": shared_prefix,
    "multi-turn": multi_turn,
    "long-prompt": long_prompt,
    "two-keys": two_keys,
    "leaving": leaving,
}


def _phase(sizes: Sizes, group: str, turns: Iterable[tuple[str, ...]]) -> Phase:
    conversations = [Conversation(said, sizes.output_tokens) for said in turns]
    return Phase((Traffic(group, conversations, sizes.arrival),))
