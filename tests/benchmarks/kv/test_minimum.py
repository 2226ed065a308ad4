from __future__ import annotations

import random

from benchmarks.kv.minimum import ComputedTokens, least_computed


def test_the_longest_prefix_is_that_of_any_sequence_before() -> None:
    computed = ComputedTokens()
    assert computed.longest_prefix([1, 2]) == 0
    computed.add([1, 2, 3])
    computed.add([1, 2, 4, 5])
    assert computed.longest_prefix([1, 2, 4, 6]) == 3
    assert computed.longest_prefix([1, 2, 3]) == 3
    assert computed.longest_prefix([2]) == 0


def test_the_prefixes_are_those_found_by_comparing_with_each() -> None:
    drawn, computed, kept = random.Random(0), ComputedTokens(), list[list[int]]()

    def shared(one: list[int], other: list[int]) -> int:
        lengths = range(min(len(one), len(other)), -1, -1)
        return next(n for n in lengths if one[:n] == other[:n])

    for _ in range(200):
        tokens = drawn.choices((1, 2), k=drawn.randrange(12))
        expected = max((shared(tokens, other) for other in kept), default=0)
        assert computed.longest_prefix(tokens) == expected
        computed.add(tokens)
        kept.append(tokens)


def test_the_last_token_of_a_prompt_is_computed_and_that_of_an_answer_is_not() -> None:
    computed = ComputedTokens()
    assert least_computed(computed, [1, 2, 3], [4, 5]) == 3 + 1
    assert least_computed(computed, [1, 2, 3], [4, 5]) == 1 + 1, "one of the prompt"
    assert least_computed(computed, [1, 2, 3, 4, 5, 6], [7]) == 2, "5 was never computed"
    assert least_computed(computed, [1, 2, 9], [7]) == 1
