from __future__ import annotations

import pytest

from benchmarks.peers.rows import BY_ID, ROWS, Goal, Row, chosen_rows, parse_row
from firstword.bench.cases import Case


def test_rows_are_written_as_words() -> None:
    assert parse_row("smollm2:135m/prefill:512") == Row("smollm2:135m", Case("prefill", 512))
    assert parse_row("a/b.gguf/decode:32@128x16").case == Case("decode", 32, 128, 16)
    assert parse_row("m/text:300") == Row("m", Case("prefill", 300), text=True)
    for row in ROWS:
        again = parse_row(row.id)
        assert (again.model, again.case, again.text) == (row.model, row.case, row.text)
    for word in ("prefill:512", "m/read:5", "m/decode", "m/decode:x@3"):
        with pytest.raises(ValueError, match="is no row"):
            parse_row(word)


def test_patterns_choose_rows_of_the_table_and_other_words_are_rows() -> None:
    assert chosen_rows([]) == list(ROWS)
    ids = [row.id for row in chosen_rows(["1b:q4_0/*", "1b:q4_0/prefill:128", "1b:q4_0/decode:3"])]
    assert len(ids) == 7 and ids[-1] == "1b:q4_0/decode:3"
    assert {row.model for row in chosen_rows(["*"], ["8b:q4_0"])} == {"8b:q4_0"}
    with pytest.raises(ValueError, match="is no row"):
        chosen_rows(["nothing*"])


def test_the_smaller_goal_of_a_decode_row_decides() -> None:
    goal = Goal(1.5, 0.9)
    assert goal.is_met(1.6, 0.5) and goal.is_met(1.0, 0.95)
    assert goal.is_met(1.0, 0.5) is False
    assert goal.is_met(1.6, None) and goal.is_met(1.0, None) is None
    assert str(goal) == "1.5x or 90% of the limit"


def test_both_goals_of_a_batched_row_count() -> None:
    goal = Goal(5.0, 0.5, "both", ("llama.cpp",))
    assert goal.is_met(5.0, 0.5)
    assert goal.is_met(9.0, 0.4) is False and goal.is_met(4.0, None) is False
    assert goal.is_met(9.0, None) is None
    assert str(goal) == "5.0x and 50% of the limit"
    assert Goal().is_met(9.0, 1.0) is None and str(Goal()) == ""


def test_peers_are_run_where_they_count() -> None:
    batched, alone = BY_ID["smollm2:135m/decode:32@128x16"], BY_ID["8b:q4_0/decode:16@128"]
    assert batched.is_counted("llama.cpp") and not batched.is_counted("ik_llama.cpp")
    assert not alone.is_counted("llama.cpp")
    assert parse_row("m/prefill:5").is_counted("ik_llama.cpp")


def test_memory_bounds_one_sequence_and_arithmetic_the_rest() -> None:
    limits = [parse_row(f"m/{case}").limit for case in ("decode:1", "decode:1x2", "prefill:1")]
    assert limits == ["memory", "arithmetic", "arithmetic"]
