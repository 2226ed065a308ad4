"""Every exception that firstword raises on purpose.

A message names the value, the limit and the remedy.

    FirstwordError
    ├── ConfigError            a setting or parameter out of its range (also a ValueError)
    │   ├── PromptTooLongError a prompt that does not fit the context
    │   └── GrammarError       a schema, regex or grammar that cannot be enforced
    ├── CheckpointError        a model file is not what it says
    │   └── UnsupportedModelError  a sound file that asks for something not built
    ├── ModelNotFoundError     a model reference that names nothing
    ├── DownloadError          a download failed, or its checksum differs
    ├── LicenseError           a model whose terms have not been accepted
    ├── ChatTemplateError      a chat template is missing, or refuses the messages
    ├── CapacityError          something that can never fit the memory budget
    ├── QueueFullError         too much waits already; says when to come again
    ├── EngineDiedError        the process that computes has ended; another takes its place
    ├── SamplingError          a logits row from which no token can be chosen
    └── StepStoppedError       a step that was stopped before its end
"""

from __future__ import annotations


class FirstwordError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(FirstwordError, ValueError):
    """A setting or parameter is out of its range."""


class PromptTooLongError(ConfigError):
    """A prompt does not fit the context; it is refused whole, never cut.

    Args:
        num_prompt_tokens: length of the prompt in tokens.
        max_model_len: tokens that the context holds, prompt and output together.
    """

    def __init__(self, num_prompt_tokens: int, max_model_len: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.max_model_len = max_model_len
        excess = num_prompt_tokens - max_model_len + 1
        super().__init__(
            f"the prompt has {num_prompt_tokens} tokens, but the context holds {max_model_len} "
            f"and needs room for at least one more: shorten the prompt by {excess} "
            f"{'token' if excess == 1 else 'tokens'} or choose a model with a longer context"
        )

    def __reduce__(self) -> tuple[type[PromptTooLongError], tuple[int, int]]:
        # Exceptions are rebuilt from their message, which is not what this one is made from.
        return type(self), (self.num_prompt_tokens, self.max_model_len)


class GrammarError(ConfigError):
    """A schema, regular expression or grammar that cannot be enforced; it is refused whole.

    Args:
        problem: what cannot be enforced, and what can be done.
        pointer: JSON pointer (RFC 6901) of the schema's keyword at fault; "" for the whole.
    """

    def __init__(self, problem: str, pointer: str = "") -> None:
        self.problem, self.pointer = problem, pointer
        super().__init__(f"{pointer}: {problem}" if pointer else problem)

    def __reduce__(self) -> tuple[type[GrammarError], tuple[str, str]]:
        return type(self), (self.problem, self.pointer)


class CheckpointError(FirstwordError):
    """A model file is not what it says: truncated, inconsistent or hostile.

    Args:
        path: the file.
        where: the field or tensor at fault.
        problem: what was expected and what was found.
    """

    def __init__(self, path: object, where: str, problem: str) -> None:
        self.path = str(path)
        self.where = where
        self.problem = problem
        super().__init__(f"{path}: {where}: {problem}")

    def __reduce__(self) -> tuple[type[CheckpointError], tuple[str, str, str]]:
        return type(self), (self.path, self.where, self.problem)


class UnsupportedModelError(CheckpointError):
    """The file is sound but asks for an architecture, type or feature that is not built."""


class ModelNotFoundError(FirstwordError):
    """A model reference names nothing that can be found."""


class DownloadError(FirstwordError):
    """A download failed or its checksum differs; nothing that looks complete was left behind."""


class LicenseError(FirstwordError):
    """The model's terms have not been accepted yet."""


class ChatTemplateError(FirstwordError):
    """The model has no chat template, or the template refuses these messages."""


class CapacityError(FirstwordError):
    """Something can never fit the memory budget, whatever else is running."""


class QueueFullError(FirstwordError):
    """Too many requests or tokens wait already.

    Args:
        problem: which limit, and what waits.
        retry_after: seconds after which there should be room, above 0.
        key_only: the limit is that of one key; others may still come.
    """

    def __init__(self, problem: str, retry_after: float, key_only: bool = False) -> None:
        self.problem, self.retry_after, self.key_only = problem, retry_after, key_only
        super().__init__(f"{problem}: try again in {retry_after:.0f} s")

    def __reduce__(self) -> tuple[type[QueueFullError], tuple[str, float, bool]]:
        return type(self), (self.problem, self.retry_after, self.key_only)


class EngineDiedError(FirstwordError):
    """The process that computes has ended; its requests are lost, the next ones are served."""


class SamplingError(FirstwordError):
    """No token can be chosen from a logits row; the other rows of the step are sound."""


class StepStoppedError(FirstwordError):
    """A step was stopped before its end; its sequences can be computed again."""
