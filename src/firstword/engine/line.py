"""The sequences that wait, and the order in which they start.

Not here: whether there is a seat, a budget or a block for them (scheduler).

    1. the higher priority
    2. those that ran before: they have lost their blocks, and somebody reads their answer
    3. the key that has used least (shares)
    4. the highest response ratio (Brinch Hansen 1971), (waited + cost) / cost

The cost is the predicted time of what the prefix cache will not give, plus that of the output as
far as it can be foreseen. Short requests so pass long ones, but not for ever. The ratio of one that
waits grows without bound; another passes it only by a ratio as high, so even the cheapest must then
have waited longer than the line of that time takes to be served, for the line is bounded
(admission): then nobody who came later is left to pass it. Likewise a key that is not served stays
where it is while each that is served moves behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from firstword.engine.policy import Seniority, seniority
from firstword.engine.request import Sequence
from firstword.engine.shares import KeyShares
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager

Place = tuple[int, bool, float, float, Seniority]

_FORESEEN_TOKENS = 64
"""Output tokens that count into a cost: how long an answer gets, nobody knows."""

_LEAST_COST_MS = 1e-3
"""Where nothing is known of times all costs are this, and the one that came first leads."""

_REFRESHES_PER_STEP = 2
"""Prefix matches renewed in a step: a match of a long prompt takes 0.1 ms."""


class WaitingLine:
    """Waiting sequences with what each is expected to cost.

    Args:
        manager: knows what is cached.
        shares: what each key has used.
        step_time: predicts milliseconds; may be replaced.
    """

    def __init__(self, manager: KVCacheManager, shares: KeyShares, step_time: StepTime) -> None:
        self.step_time = step_time
        self._manager, self._shares = manager, shares
        self._uncached: dict[Sequence, int] = {}  # waiting -> tokens that have to be computed
        self._awaited: dict[Sequence, bytes] = {}  # waiting for a block that is on its way

    def __len__(self) -> int:
        return len(self._uncached)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._uncached)

    @property
    def num_tokens(self) -> int:
        """Tokens that have to be computed for those in line, as far as is known."""
        return sum(self._uncached.values())

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait."""
        self._uncached[sequence] = self._measure(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Let a sequence go."""
        del self._uncached[sequence]
        self._awaited.pop(sequence, None)
        if self._manager.exchange is not None:
            self._manager.exchange.forget(sequence)

    # -- Waiting for blocks that are on their way -----------------------------------------------

    def await_load(self, sequence: Sequence, num_tokens: int) -> None:
        """Let a sequence wait for blocks that are loaded for it.

        Args:
            sequence: which.
            num_tokens: its tokens that are cached.
        """
        self._awaited[sequence] = b""
        sequence.waits.append((num_tokens, "disk"))

    def awaits_block(self, sequence: Sequence) -> bool:
        """Whether what this one needs next is being loaded, or computed by another.

        It is looked up again when that is done. One of lower priority is not waited for.
        """
        key = self._awaited.get(sequence)
        if key is not None and (self._is_loading(sequence) or self._manager.author(key)):
            return True
        self._awaited.pop(sequence, None)
        awaited = self._manager.awaited_block(sequence)
        if awaited is None:
            return False
        key, num_tokens = awaited
        author = self._manager.author(key)
        is_computed = isinstance(author, Sequence)
        if isinstance(author, Sequence) and author.request.priority < sequence.request.priority:
            return False
        self._awaited[sequence] = key
        sequence.waits.append((num_tokens, "neighbour" if is_computed else "disk"))
        return True

    def _is_loading(self, sequence: Sequence) -> bool:
        exchange = self._manager.exchange
        return exchange is not None and exchange.is_loading_for(sequence)

    def shortest(self) -> int | None:
        """Fewest tokens to compute of one that could start now; None where there is none."""
        awaited = self._awaited
        return min((n for s, n in self._uncached.items() if s not in awaited), default=None)

    @property
    def num_ready(self) -> int:
        """Sequences that do not wait for a block of another."""
        return len(self._uncached) - len(self._awaited)

    # -- Order ----------------------------------------------------------------------------------

    def in_order(self, now: float, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """Those in line, the first to start first.

        Keys are compared anew before each, so what is charged on the way counts.

        Args:
            now: seconds on the scheduler's clock.
            running: the running sequences.
        """
        self._refresh()
        classes: dict[tuple[int, bool], list[Sequence]] = {}
        for sequence in self._uncached:
            place = (-sequence.request.priority, not sequence.ran_before)
            classes.setdefault(place, []).append(sequence)
        for place in sorted(classes):
            if place[1]:
                yield from self._fresh_in_order(classes[place], now, running)
            else:
                yield from sorted(classes[place], key=seniority)

    def _fresh_in_order(
        self, sequences: list[Sequence], now: float, running: Iterable[Sequence]
    ) -> Iterator[Sequence]:
        queues: dict[str, list[tuple[float, Sequence]]] = {}
        for sequence in sequences:
            rank = -self.response_ratio(sequence, self._uncached[sequence], now)
            queues.setdefault(sequence.request.key, []).append((rank, sequence))
        for queue in queues.values():
            queue.sort(key=lambda entry: (entry[0], seniority(entry[1])), reverse=True)
        seats = Counter(s.request.key for s in running) if len(queues) > 1 else Counter()
        while queues:
            key = min(
                queues,
                key=lambda k: (self._shares.used(k), seats[k], queues[k][-1][0]),
            )
            yield queues[key].pop()[1]
            if not queues[key]:
                del queues[key]

    def place(self, sequence: Sequence, now: float) -> Place:
        """Sort key by the same rules of one that waits or computes its prompt."""
        request, fresh = sequence.request, sequence.num_preemptions == 0
        num_uncached = self._uncached.get(sequence, sequence.num_pending_tokens)
        ratio = self.response_ratio(sequence, num_uncached, now)
        return (
            -request.priority,
            fresh,
            self._shares.used(request.key),
            -ratio,
            seniority(sequence),
        )

    def num_uncached(self, sequence: Sequence) -> int:
        """Tokens that one in line has to compute, as far as is known."""
        return self._uncached[sequence]

    def response_ratio(self, sequence: Sequence, num_uncached: int, now: float) -> float:
        """(waited + cost) / cost, 1 for one that has just come.

        Args:
            sequence: which.
            num_uncached: tokens that have to be computed before its next one.
            now: seconds on the scheduler's clock.
        """
        cost = max(self.cost_ms(sequence, num_uncached), _LEAST_COST_MS)
        return (cost + (now - sequence.request.arrival_time) * 1e3) / cost

    def cost_ms(self, sequence: Sequence, num_uncached: int) -> float:
        """Predicted milliseconds that a sequence takes alone, without the passes of weights."""
        request = sequence.request
        num_tokens = min(request.max_tokens - sequence.num_output_tokens, _FORESEEN_TOKENS)
        prompt = self.step_time.predict(num_uncached, sequence.num_tokens - num_uncached)
        output = num_tokens * request.n * self.step_time.predict_decode(sequence.num_tokens)
        return prompt + output

    def cost_of_all_ms(self) -> float:
        """Predicted milliseconds of the work in line."""
        return sum(self.cost_ms(s, n) for s, n in self._uncached.items())

    def _refresh(self) -> None:
        """Renew what is known of a few sequences, in turns."""
        for sequence in list(self._uncached)[:_REFRESHES_PER_STEP]:
            del self._uncached[sequence]
            self._uncached[sequence] = self._measure(sequence)

    def _measure(self, sequence: Sequence) -> int:
        return sequence.num_tokens - self._manager.match_prefix(sequence).num_tokens
