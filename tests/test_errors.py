from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import firstword
from firstword import errors
from firstword.errors import (
    CheckpointError,
    ConfigError,
    FirstwordError,
    PromptTooLongError,
    SamplingError,
    StepStoppedError,
    UnsupportedModelError,
)

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception)
]
# The first reaches a caller inside an output; the second whoever stopped the step.
INTERNAL = {SamplingError, StepStoppedError}


@pytest.mark.parametrize("error", ALL)
def test_all_are_of_one_tree_and_in_its_drawing(error: type[Exception]) -> None:
    assert issubclass(error, FirstwordError)
    assert error.__doc__
    assert error.__name__ in str(errors.__doc__)


@pytest.mark.parametrize("error", [e for e in ALL if e not in INTERNAL])
def test_all_that_a_caller_may_catch_are_public(error: type[Exception]) -> None:
    assert getattr(firstword, error.__name__) is error


def test_a_setting_out_of_range_is_a_value_error_too() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(PromptTooLongError, ConfigError)
    assert issubclass(UnsupportedModelError, CheckpointError)


@pytest.mark.parametrize(("tokens", "too_many"), [(100, "1 token "), (150, "51 tokens ")])
def test_a_prompt_too_long_names_value_limit_and_remedy(tokens: int, too_many: str) -> None:
    error = PromptTooLongError(tokens, 100)
    assert (error.num_prompt_tokens, error.max_model_len) == (tokens, 100)
    message = str(error)
    assert f"the prompt has {tokens} tokens" in message
    assert "the context holds 100" in message
    assert f"shorten the prompt by {too_many}" in message


def test_a_checkpoint_error_names_file_and_place() -> None:
    error = CheckpointError(Path("m.gguf"), "tensor 'a'", "expected 3 bytes, found 2")
    assert (error.path, error.where) == ("m.gguf", "tensor 'a'")
    assert error.problem == "expected 3 bytes, found 2"
    assert str(error) == "m.gguf: tensor 'a': expected 3 bytes, found 2"


@pytest.mark.parametrize(
    "error", [PromptTooLongError(7, 5), UnsupportedModelError("f", "w", "p"), ConfigError("x")]
)
def test_errors_cross_process_borders(error: FirstwordError) -> None:
    """A server runs the engine in a process of its own."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
