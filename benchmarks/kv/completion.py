"""Prompts of token ids to any server with OpenAI's completions, and what its `usage` says.

Not here: conversations (firstword.bench.serving), load. Answers are made of words that are one
token each, by a bias on their logits: so their token ids are known from their text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from firstword.bench.serving.events import EventDecoder
from firstword.bench.serving.http import Address, Connection, RequestFailedError
from firstword.bench.serving.prompts import WORDS
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint

PATH = "/v1/completions"
PATIENCE = 900.0
"""Seconds that an answer may take."""

_BIAS = 100.0


@dataclass(frozen=True)
class Words:
    """The words that are one token each to a model.

    Args:
        by_text: the token ids of " word", by the word.
        begin: token ids that begin a prompt.
    """

    by_text: Mapping[str, int]
    begin: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: Path) -> Words:
        """Those of a model's file."""
        tokenizer = Tokenizer.from_gguf(open_checkpoint(model).tokenizer_metadata, str(model))
        found = {word: tokenizer.encode(f" {word}")[-2:] for word in WORDS}
        single = {word: ids[0] for word, ids in found.items() if len(ids) == 1}
        return cls(single, tuple(tokenizer.bos_ids))

    @property
    def ids(self) -> tuple[int, ...]:
        """Of all words."""
        return tuple(self.by_text.values())

    @property
    def bias(self) -> dict[str, float]:
        """What keeps answers to these words."""
        return {str(token): _BIAS for token in self.ids}

    def encode(self, text: str) -> list[int]:
        """Token ids of an answer.

        Raises:
            KeyError: it has another word in it.
        """
        return [self.by_text[word] for word in text.split()]


@dataclass(frozen=True)
class Usage:
    """What a server says of an answer's tokens.

    Args:
        prompt, cached, completion: counts.
        sources: of the cached ones, by name, where the server says.
        computed: tokens of the prompt that were computed, where the server says.
        miss: why no more were reused; empty where there was no more.
    """

    prompt: int
    cached: int
    completion: int
    sources: Mapping[str, int] = field(default_factory=dict)
    computed: int | None = None
    miss: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, object]) -> Usage:
        """From the object of that name."""
        details = fields.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        counts = (fields.get("prompt_tokens"), details.get("cached_tokens") or 0)
        prompt, cached, completion = (_number(n) for n in (*counts, fields["completion_tokens"]))
        computed = details.get("computed_tokens")
        return cls(
            prompt,
            cached,
            completion,
            details.get("cached_tokens_by_source") or {},
            None if computed is None else _number(computed),
            details.get("cache_miss") or {},
        )

    @property
    def positions(self) -> int:
        """Positions computed for the prompt and its answer, whose last token needs none."""
        return self.prompt - self.cached + self.completion - 1

    @property
    def adds_up(self) -> bool:
        """Whether the sources are all of what was cached, and the rest was computed."""
        cached = sum(self.sources.values())
        return cached == self.cached and self.computed == self.prompt - cached


@dataclass(frozen=True)
class Answer:
    """What came of a prompt.

    Args:
        text: all of it.
        ttft: seconds to its first word.
        seconds: to its end.
        usage: as the server counts.
        logprobs: of its tokens, where they were asked for.
    """

    text: str
    ttft: float
    seconds: float
    usage: Usage
    logprobs: tuple[float, ...] = ()

    @property
    def bits(self) -> tuple[object, ...]:
        """What the same request must give again."""
        return self.text, *self.logprobs


def body(prompt: Sequence[int] | str, max_tokens: int, **further: object) -> dict[str, object]:
    """A request that is answered greedily and at full length, as a stream with its usage."""
    return {
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **further,
    }


async def complete(address: Address, fields: Mapping[str, object]) -> Answer:
    """Have a prompt continued.

    Args:
        address: of the server.
        fields: as `body` makes them.

    Raises:
        RequestFailedError: there was no complete answer.
    """
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    stream, decoder, start = _Stream(), EventDecoder(), time.perf_counter()
    async with Connection(address) as connection:
        status = await connection.send("POST", PATH, headers, json.dumps(dict(fields)).encode())
        if status != 200:
            detail = (await connection.read_all()).decode(errors="replace")
            raise RequestFailedError(f"HTTP {status}", detail[:200])
        while piece := await connection.read():
            now = time.perf_counter() - start
            for data in decoder.push(piece):
                stream.take(data, now)
    return stream.answer()


class _Stream:
    """Gathers the events of one answer."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._times: list[float] = []
        self._logprobs: list[float] = []
        self._usage: Usage | None = None

    def take(self, data: str, now: float) -> None:
        if data == "[DONE]":
            return
        event = json.loads(data)
        if event.get("error"):
            raise RequestFailedError("error in the stream", str(event["error"])[:200])
        for choice in event.get("choices") or ():
            if choice.get("text"):
                self._pieces.append(choice["text"])
                self._times.append(now)
            self._logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or ()
        if event.get("usage"):
            self._usage = Usage.of(event["usage"])
            self._end = now

    def answer(self) -> Answer:
        if self._usage is None or not self._times:
            raise RequestFailedError("closed early", "no text, or no usage at its end")
        text, logprobs = "".join(self._pieces), tuple(self._logprobs)
        return Answer(text, self._times[0], self._end, self._usage, logprobs)


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise RequestFailedError("malformed answer", f"{value!r} is no number of tokens")
    return value
