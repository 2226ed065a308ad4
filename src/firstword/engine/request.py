"""What a caller asked for (a request), and the token sequences that answer it.

Not here: text, sampling parameters (sampling.params) and the order of work (scheduler).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from firstword.errors import ConfigError
from firstword.kvcache.sources import CacheMiss, PromptSources, Wait

FinishReason = Literal["stop", "length", "abort"]

PROTECTED_TOKENS = 32
"""Tokens that a sequence preempted twice may produce before it can be preempted again."""


class SequenceStatus(Enum):
    """Where a sequence is on its way; PREEMPTED is WAITING after having lost its blocks."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(frozen=True)
class RequestOptions:
    """A request's place among the others, as its caller wants it.

    Args:
        priority: higher goes first.
        key: whose request it is, for fair preemption.
        salt: requests of different salts share no cached blocks.
        arrival: when it came, on the engine's clock; None for now.
        store: its blocks may be kept on the disk.
    """

    priority: int = 0
    key: str = ""
    salt: str = ""
    arrival: float | None = None
    store: bool = True


@dataclass(eq=False)
class Request:
    """One prompt and the n sequences that continue it.

    Args:
        request_id: unique among the requests that have not ended.
        prompt_token_ids: the prompt, at least one token.
        max_tokens: output tokens of each sequence at most, >= 1, fitted to the context.
        n: sequences (samples), >= 1; they share the prompt's blocks.
        min_tokens: a stop token ends a sequence only after this many other tokens, >= 0.
        stop_token_ids: tokens that end a sequence; they include EOS unless it is ignored.
        priority: higher goes first.
        key: whose request it is; the pool is shared fairly between keys.
        salt: blocks are shared only with requests of the same salt.
        arrival_time: seconds on the scheduler's clock.
        store: its blocks may be kept on the disk.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    n: int = 1
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    key: str = ""
    salt: str = ""
    arrival_time: float = 0.0
    store: bool = True
    sequences: tuple[Sequence, ...] = field(init=False, repr=False)
    arrival_number: int = field(default=0, init=False)  # given by the scheduler, breaks ties

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise ConfigError(f"request {self.request_id!r} has no prompt: give at least one token")
        for name in ("max_tokens", "n"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"request {self.request_id!r}: {name} is {getattr(self, name)}: "
                    "it must be at least 1"
                )
        self.sequences = tuple(Sequence(self, index) for index in range(self.n))

    @property
    def is_finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(sequence.is_finished for sequence in self.sequences)

    @property
    def unforked(self) -> tuple[Sequence, ...]:
        """Sequences that wait for another to compute the prompt for them."""
        return tuple(s for s in self.sequences if s.awaits_fork and not s.is_finished)


@dataclass(eq=False)
class Sequence:
    """One continuation of a prompt, told apart by identity.

    Each step lets `num_computed_tokens` catch up with `num_tokens`. That one rule is prefill,
    decode, prefix hit and recovery from preemption.

    Args:
        request: what it answers.
        index: which of the request's n samples it is.
    """

    request: Request = field(repr=False)
    index: int
    token_ids: list[int] = field(init=False, repr=False)
    status: SequenceStatus = field(default=SequenceStatus.WAITING, init=False)
    num_computed_tokens: int = field(default=0, init=False)
    sources: PromptSources = field(default_factory=PromptSources, init=False)  # when first run
    waits: list[Wait] = field(default_factory=list, init=False)  # before it first ran
    miss: CacheMiss | None = field(default=None, init=False)  # what the cache lacked then, and why
    num_preemptions: int = field(default=0, init=False)
    protected_until: int = field(default=0, init=False)  # a number of output tokens
    finish_reason: FinishReason | None = field(default=None, init=False)
    stop_reason: int | None = field(default=None, init=False)  # the stop token that ended it
    has_run: bool = field(default=False, init=False)  # it has been part of a step, to its end
    awaits_fork: bool = field(init=False)
    block_keys: list[bytes] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.awaits_fork = self.index > 0

    @property
    def salt(self) -> str:
        """Salt of the request."""
        return self.request.salt

    @property
    def is_kept(self) -> bool:
        """Whether its blocks may be kept on the disk."""
        return self.request.store

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and output."""
        return len(self.token_ids)

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed, when it first ran."""
        return self.sources.num_cached

    @property
    def num_output_tokens(self) -> int:
        """Tokens produced so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_positions(self) -> int:
        """Positions whose K/V it needs: its last token, once it has one, never enters the model."""
        return self.num_prompt_tokens + max(self.num_output_tokens - 1, 0)

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens produced so far."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_pending_tokens(self) -> int:
        """Tokens not computed yet: one while it decodes."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self.status is SequenceStatus.FINISHED

    @property
    def is_protected(self) -> bool:
        """Whether it keeps its blocks while there is any other to take from."""
        return self.num_output_tokens < self.protected_until

    @property
    def ran_before(self) -> bool:
        """Whether it has run and lost its blocks, where it waits."""
        return self.has_run or self.num_preemptions > 0

    def preempt(self) -> None:
        """Note that it has lost all its blocks."""
        self.status = SequenceStatus.PREEMPTED
        self.num_computed_tokens = 0
        self.num_preemptions += 1
        if self.num_preemptions >= 2:
            self.protected_until = self.num_output_tokens + PROTECTED_TOKENS

    def return_to_line(self) -> None:
        """Note that the step in which it was did not run, and that it holds nothing."""
        waits = self.num_preemptions == 0
        self.status = SequenceStatus.WAITING if waits else SequenceStatus.PREEMPTED
        self.num_computed_tokens = 0

    def finish(self, reason: FinishReason, stop_reason: int | None) -> None:
        """Note that it has ended, and why."""
        self.status = SequenceStatus.FINISHED
        self.finish_reason = reason
        self.stop_reason = stop_reason

    def ends_with_next_token(self, max_model_len: int) -> bool:
        """Say whether its next token is the last one, whatever it is.

        Args:
            max_model_len: tokens that the context holds.
        """
        at_limit = self.num_output_tokens + 1 >= self.request.max_tokens
        return at_limit or self.num_tokens + 1 >= max_model_len

    def reason_to_stop(self, max_model_len: int) -> FinishReason | None:
        """Say whether the last token ends the sequence.

        Args:
            max_model_len: tokens that the context holds.
        """
        request = self.request
        stops = self.token_ids[-1] in request.stop_token_ids
        if stops and self.num_output_tokens > request.min_tokens:
            return "stop"
        if self.num_output_tokens >= request.max_tokens or self.num_tokens >= max_model_len:
            return "length"
        return None
