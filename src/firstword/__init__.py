"""firstword: from the prompt to the first word, and every word after it.

The public names, imported on first use so that ``import firstword`` stays under 50 ms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstword.async_llm import AsyncLLM
    from firstword.engine.outputs import CompletionOutput, RequestOutput
    from firstword.engine.request import RequestOptions
    from firstword.errors import (
        CapacityError,
        ChatTemplateError,
        CheckpointError,
        ConfigError,
        DownloadError,
        EngineDiedError,
        FirstwordError,
        GrammarError,
        LicenseError,
        ModelNotFoundError,
        PromptTooLongError,
        QueueFullError,
        UnsupportedModelError,
    )
    from firstword.llm import LLM
    from firstword.sampling.params import Grammar, SamplingParams

__version__ = "0.1.0"

_ERRORS = "firstword.errors"
_HOME = {
    "LLM": "firstword.llm",
    "AsyncLLM": "firstword.async_llm",
    "SamplingParams": "firstword.sampling.params",
    "Grammar": "firstword.sampling.params",
    "RequestOutput": "firstword.engine.outputs",
    "CompletionOutput": "firstword.engine.outputs",
    "RequestOptions": "firstword.engine.request",
    "FirstwordError": _ERRORS,
    "ConfigError": _ERRORS,
    "PromptTooLongError": _ERRORS,
    "CheckpointError": _ERRORS,
    "UnsupportedModelError": _ERRORS,
    "ModelNotFoundError": _ERRORS,
    "DownloadError": _ERRORS,
    "LicenseError": _ERRORS,
    "ChatTemplateError": _ERRORS,
    "CapacityError": _ERRORS,
    "EngineDiedError": _ERRORS,
    "GrammarError": _ERRORS,
    "QueueFullError": _ERRORS,
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "CapacityError",
    "ChatTemplateError",
    "CheckpointError",
    "CompletionOutput",
    "ConfigError",
    "DownloadError",
    "EngineDiedError",
    "FirstwordError",
    "Grammar",
    "GrammarError",
    "LicenseError",
    "ModelNotFoundError",
    "PromptTooLongError",
    "QueueFullError",
    "RequestOptions",
    "RequestOutput",
    "SamplingParams",
    "UnsupportedModelError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'firstword' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
