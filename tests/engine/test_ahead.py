"""What may be chosen before the tokens of the step under way are known."""

from __future__ import annotations

from firstword.engine.ahead import next_decodes, plain_step
from firstword.engine.request import Request
from firstword.engine.step import StepLoad, StepTime
from tests.fakes import Driver


def decoding(*requests: Request, num_blocks: int = 64) -> Driver:
    """A scheduler of which all requests have come to their first token."""
    driver = Driver(num_blocks=num_blocks)
    for request in requests:
        driver.scheduler.add(request)
    driver.step()
    return driver


def test_each_sequence_goes_on_behind_the_token_to_come() -> None:
    driver = decoding(Request("a", (1, 2, 3), 9), Request("b", (4, 5), 9))
    before = driver.schedule()
    after = next_decodes(before, driver.manager, driver.max_model_len)
    assert [(i.start, i.num_tokens, i.samples) for i in after] == [(4, 1, (0,)), (3, 1, (0,))]
    assert [len(item.block_tables[0]) for item in after] == [2, 1]  # of 4 tokens each


def test_one_that_ends_by_its_length_is_left_out() -> None:
    driver = decoding(Request("a", (1, 2, 3), 2), Request("b", (4, 5), 9))
    after = next_decodes(driver.schedule(), driver.manager, driver.max_model_len)
    assert [item.sequence.request.request_id for item in after] == ["b"]


def test_nothing_where_a_prompt_is_still_read() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", tuple(range(20)), 9))
    assert next_decodes(driver.schedule(), driver.manager, driver.max_model_len) == ()


def test_nothing_where_samples_begin() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", (1, 2), 9, n=2))
    assert next_decodes(driver.schedule(), driver.manager, driver.max_model_len) == ()


def test_nothing_where_a_block_lacks() -> None:
    driver = decoding(Request("a", (1, 2, 3), 2), Request("b", (4, 5, 6), 5), num_blocks=2)
    before = driver.schedule()
    assert next_decodes(before, driver.manager, driver.max_model_len) == ()


def test_a_plain_step_has_its_load_and_its_time() -> None:
    driver = decoding(Request("a", (1, 2, 3), 9))
    after = next_decodes(driver.schedule(), driver.manager, driver.max_model_len)
    step = plain_step(7, 1.5, after, StepTime(1, 2, 0.5, 4))
    assert (step.step, step.time, step.load) == (7, 1.5, StepLoad(1, 5, 1))
    assert step.predicted_ms == 1 + 2 + 0.5 * 5 + 4
    assert (step.block_copies, step.preemptions, step.prefix_hits) == ((), (), ())
