"""The rules of a step: how much a sequence may compute, who goes first, who yields blocks.

Not here: queues and blocks (scheduler); nothing in this module changes a sequence.

A sequence preempted twice is protected until it has produced 32 tokens more, so every admitted
request ends. Every running sequence computes at least one position in a step, for
there are never more of them than the budget has tokens; so it ends unless it is preempted. Suppose
some sequences were preempted for ever. Outputs are bounded and survive preemption, so from some
step on these are all protected whenever they run. Among protected ones the order is fixed
(priority, arrival), so the first of them comes before the others for blocks, and alone it fits
(the scheduler sees to that): it is preempted no more, a contradiction. And a waiting
sequence gets its turn at the latest when nothing runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import inf

from firstword.engine.request import Sequence
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager

Seniority = tuple[float, int, int]
Standing = tuple[bool, int, int, Seniority]
_RULES = ("the others are protected", "lowest priority", "its key holds most", "youngest")


LEAST_STRETCH = 2.4
"""How much longer than with decodes alone a step may at least be, where prompts wait as well.

If decodes alone take D, a step of f x D leaves (f - 1) x D to prompts: they take f / (f - 1) times
as long as alone, and decodes f times: that at most, for both share the passes over the weights.
Measured with SmolLM2, 4,000 tokens beside eight chats, at f = 1.75: gaps (95th percentile) 1.4
times, the long prompt's first token 4.0 times as long as alone; at 2.4: 1.2 and 2.7 times.
"""

MOST_STRETCH = 6.0
"""The same where many prompts wait for each decode.

With 16 clients at once SmolLM2 gives 430 tokens/s, 394 at 3.
"""


OWED_STRETCH = 4.0
"""The same for the prompts of a key that is owed, of which there are few at a time (shares)."""

PASSES_WITHOUT_DECODES = 16
"""Passes over the weights that a step without decodes may last where several keys are in use.

The pass that each step pays is then a sixteenth of it, and another key's prompt waits no longer.
"""


@dataclass
class Budget:
    """What is left of a step.

    Args:
        step_time: predicts milliseconds.
        num_tokens: positions left.
        ms: predicted milliseconds left; may be below 0, or infinite.
        manager: says where chunks have to end, and how many tokens fill a block.
        owed_key: the key, if any, whose prompts may take more.
        owed_ms: predicted milliseconds left for these.
        shortest_waiting: fewest tokens that one in line needs; None if none could start.
    """

    step_time: StepTime
    num_tokens: int
    ms: float
    manager: KVCacheManager
    owed_key: str | None = None
    owed_ms: float = 0.0
    shortest_waiting: int | None = None

    def spend(self, num_tokens: int, start: int) -> None:
        """Take off a chunk of `num_tokens` from position `start`."""
        ms = self.step_time.predict(num_tokens, start)
        self.num_tokens -= num_tokens
        self.ms -= ms
        self.owed_ms -= ms

    def give_back(self, num_tokens: int, start: int) -> None:
        """Undo `spend`."""
        ms = self.step_time.predict(num_tokens, start)
        self.num_tokens += num_tokens
        self.ms += ms
        self.owed_ms += ms

    def serve_decodes(self, decoding: Iterable[Sequence]) -> float:
        """Take off one position for each; returns the predicted milliseconds."""
        ms = 0.0
        for sequence in decoding:
            self.num_tokens -= 1
            ms += self.step_time.predict_decode(sequence.num_computed_tokens)
        self.ms -= ms
        return ms

    def share_out(self, behind: SequenceOf[Sequence]) -> dict[Sequence, int]:
        """Divide the budget between running sequences that are more than one token behind.

        Args:
            behind: in the order in which they are served, no more than there are tokens left;
                each gets one at least.

        Returns:
            Positions for each sequence; they are taken off the budget.
        """
        shortest = [self.shortest_in_line]
        for sequence in reversed(behind[1:]):
            shortest.append(min(shortest[-1], sequence.num_pending_tokens))
        sizes: dict[Sequence, int] = {}
        for num_behind, sequence in zip(reversed(range(len(behind))), behind, strict=True):
            start = sequence.num_computed_tokens
            size = self.chunk(sequence, start, num_behind=num_behind, shortest=shortest.pop())
            sizes[sequence] = max(1, size)
            self.spend(sizes[sequence], start)
        return sizes

    @property
    def shortest_in_line(self) -> float:
        """Fewest tokens that one in line needs; infinite if none could start."""
        return inf if self.shortest_waiting is None else self.shortest_waiting

    def chunk(self, sequence: Sequence, start: int, *, num_behind: int, shortest: float) -> int:
        """Positions that a sequence may compute from `start`: 0 where the budget is used up.

        Args:
            sequence: whose turn it is.
            start: its first position to compute.
            num_behind: running sequences still to be served; a token is kept for each.
            shortest: fewest tokens that one behind it needs; infinite where there is none. If
                that is less than half of what this one needs, half of what is left stays for
                them, unless it is less than a block's worth of tokens.
        """
        size, ms, num_pending = self.num_tokens - num_behind, self.ms, sequence.num_tokens - start
        if sequence.request.key == self.owed_key:
            ms = max(ms, self.owed_ms)
        elif 2 * shortest < num_pending:
            size = max(size // 2, min(size, self.manager.spec.block_size))
            ms /= 2
        size = min(size, num_pending, self.manager.chunk_limit(start) or size)
        return self.step_time.max_tokens_within(ms, start, size)


def stretch(num_decoding: int, num_behind: int) -> float:
    """How many times as long as its decodes alone a step may be, prompts included.

    A millisecond more delays each one that decodes and is saved by each one that waits for its
    first token, so their numbers decide; but neither is ever held up without bound.

    Args:
        num_decoding: sequences one token behind, >= 1.
        num_behind: sequences that wait for a first token, running or in line.
    """
    wanted = 1 + (LEAST_STRETCH - 1) * num_behind / num_decoding
    return min(max(wanted, LEAST_STRETCH), MOST_STRETCH)


def by_standing(running: Iterable[Sequence], candidates: Iterable[Sequence]) -> list[Sequence]:
    """Sort candidates so that the last one is the first to lose its blocks.

    Args:
        running: all running sequences; what they hold together is a key's share.
        candidates: the ones to sort.
    """
    candidates = list(candidates)
    if len(candidates) < 2:
        return candidates
    held = _tokens_per_key(running)
    return sorted(candidates, key=lambda sequence: _standing(sequence, held))


def preemption_reason(
    running: Iterable[Sequence], victim: Sequence, spared: SequenceOf[Sequence]
) -> str:
    """Name the rule that put the victim behind the last of those spared."""
    if not spared:
        return "nobody else runs"
    held = _tokens_per_key(running)
    pairs = zip(_RULES, _standing(victim, held), _standing(spared[-1], held), strict=True)
    return next(rule for rule, a, b in pairs if a != b)


def _tokens_per_key(running: Iterable[Sequence]) -> Counter[str]:
    held = Counter[str]()
    for sequence in running:
        held[sequence.request.key] += sequence.num_computed_tokens
    return held


def _standing(sequence: Sequence, held: Counter[str]) -> Standing:
    """Unprotected last; then the lowest priority, the key that holds most, the youngest.

    All keys have the same share of the pool, so the one that holds most is most over it. Among
    protected sequences the order never changes, which is why every request ends (scheduler).
    """
    request, protected = sequence.request, sequence.is_protected
    num_held = 0 if protected else held[request.key]
    return (not protected, -request.priority, num_held, seniority(sequence))


def seniority(sequence: Sequence) -> Seniority:
    """Sort key: the one that came first leads."""
    request = sequence.request
    return (request.arrival_time, request.arrival_number, sequence.index)
