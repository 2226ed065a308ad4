"""The least that must be computed when everything computed before can be reused, token by token.

It knows nothing of blocks, of memory and of any engine: only which tokens were read and written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class _Node:
    after: dict[int, _Node] = field(default_factory=dict)


class ComputedTokens:
    """All token sequences whose keys and values were computed, as a tree of their prefixes."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember a sequence that was computed from its first token to its last."""
        node = self._root
        for token in token_ids:
            node = node.after.setdefault(token, _Node())

    def longest_prefix(self, token_ids: Sequence[int]) -> int:
        """Leading tokens of a sequence that were computed before."""
        node = self._root
        for count, token in enumerate(token_ids):
            if token not in node.after:
                return count
            node = node.after[token]
        return len(token_ids)


def least_computed(computed: ComputedTokens, prompt: Sequence[int], answer: Sequence[int]) -> int:
    """The least number of positions to compute for a prompt and its answer, which is then added.

    The last token of a prompt is always computed, for what comes after it; the last token of an
    answer never is, for nothing comes after it.

    Args:
        computed: by everything before.
        prompt: token ids.
        answer: token ids; at least one.
    """
    reused = min(computed.longest_prefix(prompt), len(prompt) - 1)
    computed.add([*prompt, *answer[:-1]])
    return len(prompt) - reused + len(answer) - 1
