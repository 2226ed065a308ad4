from __future__ import annotations

import pytest

from firstword import LLM
from firstword.bench.cases import Case
from firstword.bench.measure import Bench, Measurement
from firstword.errors import CapacityError


def run(llm: LLM, *cases: Case, repeat: int = 2) -> list[Measurement]:
    return Bench(llm).run(cases, repeat, lambda text: None)


@pytest.mark.parametrize(
    "case",
    [
        Case("prefill", 40),
        Case("prefill", 100, batch=2),  # more than one step
        Case("prefill", 20, depth=70),
        Case("prefill", 20, depth=96, batch=2),
    ],
)
def test_a_prefill_computes_its_tokens_and_no_others(llm: LLM, case: Case) -> None:
    (measured,) = run(llm, case)
    assert [span.num_tokens for span in measured.spans] == [case.num_tokens * case.batch] * 2
    assert all(speed > 0 for speed in measured.speeds)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("depth", [0, 50])
def test_a_decode_counts_only_steps_of_all_sequences(llm: LLM, depth: int, batch: int) -> None:
    (measured,) = run(llm, Case("decode", 8, depth, batch))
    assert [span.num_steps for span in measured.spans] == [8, 8]
    assert [span.num_tokens for span in measured.spans] == [8 * batch] * 2


def test_a_chat_is_split_in_two(llm: LLM) -> None:
    prefill, decode = run(llm, Case("chat", 12, depth=30))
    assert (prefill.phase, decode.phase) == ("prefill", "decode")
    assert [span.num_tokens for span in prefill.spans] == [30, 30]
    assert [span.num_tokens for span in decode.spans] == [11, 11]  # the first came with the prompt


def test_repeats_go_round_the_cases(llm: LLM) -> None:
    told: list[str] = []
    cases = [Case("prefill", 4), Case("decode", 2)]
    Bench(llm).run(cases, 1, told.append)
    assert told == [
        "warming up: prefill 4",
        "warming up: decode 2",
        "round 1 of 1: prefill 4",
        "round 1 of 1: decode 2",
    ]


def test_the_model_is_as_before_afterwards(llm: LLM) -> None:
    runner = llm.engine.runner
    run(llm, Case("prefill", 4), repeat=1)
    assert llm.engine.runner is runner


def test_more_sequences_than_run_at_once_are_refused(llm: LLM) -> None:
    with pytest.raises(CapacityError, match="9 sequences"):
        run(llm, Case("decode", 4, 8, batch=9))


def test_prompts_are_cut_from_a_text_each_from_further_on(llm: LLM) -> None:
    bench = Bench(llm, text=range(1000, 1400))
    first, second = bench._fresh(5), bench._fresh(400)
    assert first[1:] == [1001, 1002, 1003, 1004]
    assert second[1:3] == [1098, 1099] and second[-1] == 1096
    assert first[0] != second[0]
