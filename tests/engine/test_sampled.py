from __future__ import annotations

from firstword.batch import SampledToken
from firstword.engine.request import Request
from firstword.engine.sampled import key_of, output_of, sampled_keys
from firstword.engine.step import SequenceUpdate
from tests.fakes import Driver

TOKEN = SampledToken(7, -0.5, 0.25, 3)


def test_rows_are_named_in_their_order() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", (1, 2), 3, n=2))
    driver.scheduler.add(Request("b", (3,), 3))
    assert sampled_keys(driver.schedule()) == [("a", 0), ("a", 1), ("b", 0)]


def test_the_models_own_end_is_no_stop_reason() -> None:
    (sequence,) = Request("a", (1, 2), 3).sequences
    assert key_of(sequence) == ("a", 0)
    going_on = output_of(SequenceUpdate(sequence, 7, False), TOKEN, {7})
    assert (going_on.finish_reason, going_on.ended_by_token) == (None, False)
    sequence.finish("stop", 7)
    for eos, reason in (({7}, None), ({8}, 7)):
        last = output_of(SequenceUpdate(sequence, 7, True), TOKEN, eos)
        assert (last.finish_reason, last.stop_reason, last.ended_by_token) == ("stop", reason, True)
    assert (last.token_id, last.logprob, last.probability) == (7, -0.5, 0.25)
