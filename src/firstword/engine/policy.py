"""The rules of a step: how much a sequence may compute, who goes first, who yields blocks.

Not here: queues and blocks (scheduler); nothing in this module changes a sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from firstword.engine.request import Sequence
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager

Seniority = tuple[float, int, int]
Standing = tuple[bool, int, int, Seniority]
_RULES = ("the others are protected", "lowest priority", "its key holds most", "youngest")


@dataclass
class Budget:
    """What is left of a step.

    Args:
        step_time: predicts milliseconds.
        num_tokens: positions left.
        ms: predicted milliseconds left; may be below 0, or infinite.
        manager: says where chunks have to end, and how many tokens fill a block.
    """

    step_time: StepTime
    num_tokens: int
    ms: float
    manager: KVCacheManager

    def spend(self, num_tokens: int, start: int) -> None:
        """Take off a chunk of `num_tokens` from position `start`."""
        self.num_tokens -= num_tokens
        self.ms -= self.step_time.predict(num_tokens, start)

    def share_out(self, running: Iterable[Sequence], others_wait: bool) -> dict[Sequence, int]:
        """Divide the budget between running sequences: those one token behind come first.

        Args:
            running: no more sequences than there are tokens left; each gets one at least.
            others_wait: whether some of the budget should be left for others.

        Returns:
            Positions for each sequence; they are taken off the budget.
        """
        sizes: dict[Sequence, int] = {}
        for sequence in running:
            if sequence.num_pending_tokens == 1:
                sizes[sequence] = 1
                self.spend(1, sequence.num_computed_tokens)
        rest = sorted((s for s in running if s not in sizes), key=place_in_line)
        for num_behind, sequence in zip(reversed(range(len(rest))), rest, strict=True):
            start, contended = sequence.num_computed_tokens, others_wait or num_behind > 0
            size = self.chunk(sequence, start, num_behind=num_behind, contended=contended)
            sizes[sequence] = max(1, size)
            self.spend(sizes[sequence], start)
        return sizes

    def chunk(self, sequence: Sequence, start: int, *, num_behind: int, contended: bool) -> int:
        """Positions that a sequence may compute from `start`: 0 where the budget is used up.

        Args:
            sequence: whose turn it is.
            start: its first position to compute.
            num_behind: running sequences still to be served; a token is kept for each.
            contended: whether anybody stands behind: then half of what is left stays for them,
                unless it is less than a block's worth of tokens.
        """
        size, ms = self.num_tokens - num_behind, self.ms
        if contended:
            size = max(size // 2, min(size, self.manager.spec.block_size))
            ms /= 2
        size = min(size, sequence.num_tokens - start, self.manager.chunk_limit(start) or size)
        return self.step_time.max_tokens_within(ms, start, size)


def place_in_line(sequence: Sequence) -> tuple[int, bool, Seniority]:
    """Sort key of sequences that wait or catch up: those that ran before lead their class."""
    fresh = not sequence.has_run and sequence.num_preemptions == 0
    return (-sequence.request.priority, fresh, _seniority(sequence))


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
    return (not protected, -request.priority, num_held, _seniority(sequence))


def _seniority(sequence: Sequence) -> Seniority:
    request = sequence.request
    return (request.arrival_time, request.arrival_number, sequence.index)
