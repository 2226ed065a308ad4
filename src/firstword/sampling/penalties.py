"""How often each token of a sequence has occurred, kept up to date token by token.

Not here: what is taken off the logits for it (processors, csrc/kernels/sample.h).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from firstword.batch import Int32Array, PenaltyTable
from firstword.sampling.params import SamplingParams

_FIRST_CAPACITY = 64


class TokenCounts:
    """Counts the tokens of one growing sequence.

    The order of the table is that of first occurrence; no result depends on it.

    Args:
        params: the penalties and their scope.
        num_prompt_tokens: tokens of the sequence that are the prompt.
    """

    def __init__(self, params: SamplingParams, num_prompt_tokens: int) -> None:
        self._params = params
        self._num_seen = 0 if params.penalty_scope == "all" else num_prompt_tokens
        self._places: dict[int, int] = {}  # token id -> its index in both arrays
        self._ids = np.empty(_FIRST_CAPACITY, np.int32)
        self._counts = np.empty(_FIRST_CAPACITY, np.int32)

    def table(self, token_ids: Sequence[int]) -> PenaltyTable | None:
        """The penalties of the next token.

        Args:
            token_ids: all tokens of the sequence, at least as many as when last asked; only the
                new ones are looked at.

        Returns:
            A table that later tokens do not change; None while none has occurred.
        """
        for token_id, count in Counter(token_ids[self._num_seen :]).items():
            place = self._place_of(token_id)  # may replace the arrays
            self._counts[place] += count
        self._num_seen = max(self._num_seen, len(token_ids))
        size = len(self._places)
        if size == 0:
            return None
        return PenaltyTable(
            token_ids=self._ids[:size],  # entries are added, never changed: no copy
            counts=self._counts[:size].copy(),
            repetition=self._params.repetition_penalty,
            frequency=self._params.frequency_penalty,
            presence=self._params.presence_penalty,
        )

    def _place_of(self, token_id: int) -> int:
        place = self._places.get(token_id)
        if place is None:
            place = self._places[token_id] = len(self._places)
            if place == len(self._ids):
                self._ids, self._counts = _doubled(self._ids), _doubled(self._counts)
            self._ids[place], self._counts[place] = token_id, 0
        return place


def _doubled(array: Int32Array) -> Int32Array:
    return np.concatenate((array, np.empty_like(array)))
