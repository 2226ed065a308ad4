"""From a body's fields to what the engine takes: sampling, form of the answer, place in line.

Not here: the fields' types (schema), messages (messages).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from firstword.engine.request import RequestOptions
from firstword.errors import ConfigError, GrammarError
from firstword.sampling.params import Grammar, SamplingParams
from firstword.server.errors import RequestError
from firstword.server.openai.schema import ChatBody, CompletionBody, ResponseFormat, SharedBody

COMPLETION_MAX_TOKENS = 16
"""Of a completion that does not say, as the API has it."""

_TOP_TOKEN = 1e-30  # a top_p of 0 means the most probable token: no other sum is this small

_GUIDES = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_SAME_NAMES = (
    "temperature",
    "top_k",
    "n",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "penalty_scope",
    "skip_special_tokens",
)


def chat_params(body: ChatBody) -> SamplingParams:
    """The sampling parameters of a chat.

    Raises:
        RequestError, ConfigError: a value is out of its range, or fields contradict each other.
    """
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs: set it to true", "top_logprobs")
    given = (body.max_tokens, body.max_completion_tokens)
    limits = {limit for limit in given if limit is not None}
    if len(limits) > 1:
        raise RequestError(
            f"max_tokens is {body.max_tokens} and max_completion_tokens is "
            f"{body.max_completion_tokens}, but they are one limit: leave out the first",
            "max_tokens",
        )
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    grammar = _one_grammar({**_guided(body), **_response_grammar(body.response_format)})
    return _params(body, max(limits, default=None), logprobs, grammar)


def completion_params(body: CompletionBody) -> SamplingParams:
    """The sampling parameters of a completion.

    Raises:
        RequestError, ConfigError: as for `chat_params`.
    """
    max_tokens = body.max_tokens or COMPLETION_MAX_TOKENS
    return _params(body, max_tokens, body.logprobs, _one_grammar(_guided(body)))


def options_of(body: SharedBody, key: str, salt: str) -> RequestOptions:
    """The request's place among the others.

    Args:
        body: its priority and salt, and whether its prompt may stay on the disk.
        key: whose request it is.
        salt: of the key, "" for none.
    """
    return RequestOptions(
        priority=body.priority or 0,
        key=key,
        salt=salt + (body.cache_salt or ""),
        store=body.store is not False,
    )


def _params(
    body: SharedBody, max_tokens: int | None, logprobs: int | None, grammar: Grammar | None
) -> SamplingParams:
    _check_stream(body)
    given = {name: getattr(body, name) for name in _SAME_NAMES}
    if body.stop is not None:
        given["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.top_p is not None:
        given["top_p"] = body.top_p or _TOP_TOKEN
    if body.logit_bias:
        given["logit_bias"] = _logit_bias(body.logit_bias)
    if body.seed is not None:
        given["seed"] = body.seed % 2**64
    given |= {"max_tokens": max_tokens, "logprobs": logprobs, "grammar": grammar}
    return SamplingParams(**{name: value for name, value in given.items() if value is not None})


def _check_stream(body: SharedBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream: set it to true", "stream_options")
    if body.return_progress and not body.stream:
        raise RequestError("return_progress needs stream: set it to true", "return_progress")
    if body.return_prompt_token_ids and not body.return_resolved:
        raise RequestError(
            "return_prompt_token_ids needs return_resolved: set it to true",
            "return_prompt_token_ids",
        )


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    bias = {}
    for token_id, value in given.items():
        # At most 10 digits: isdecimal() lets other scripts' digits through, which int() reads.
        if not (token_id.isascii() and token_id.isdecimal() and len(token_id) <= 10):
            raise RequestError(
                f"logit_bias has the key {token_id[:40]!r}: keys are token ids", "logit_bias"
            )
        bias[int(token_id)] = value
    return bias


def _guided(body: SharedBody) -> dict[str, Grammar]:
    """The forms that the guided_* fields ask for, by field."""
    forms = {}
    if body.guided_json is not None:
        schema = body.guided_json
        text = schema if isinstance(schema, str) else _dumped(schema, "guided_json")
        forms["guided_json"] = Grammar("json_schema", text)
    if body.guided_regex is not None:
        forms["guided_regex"] = Grammar("regex", body.guided_regex)
    if body.guided_choice is not None:
        forms["guided_choice"] = Grammar("choice", _dumped(body.guided_choice, "guided_choice"))
    if body.guided_grammar is not None:
        forms["guided_grammar"] = Grammar("lark", body.guided_grammar)
    return forms


def _response_grammar(wanted: ResponseFormat | None) -> dict[str, Grammar]:
    if wanted is None or wanted.type == "text":
        return {}
    if wanted.type == "json_object":
        return {"response_format": Grammar("json_object")}
    if wanted.json_schema is None or wanted.json_schema.schema_ is None:
        where = "response_format.json_schema.schema"
        raise RequestError(f"{where} is missing", where, "missing_required_parameter")
    text = _dumped(wanted.json_schema.schema_, "response_format.json_schema.schema")
    return {"response_format": Grammar("json_schema", text)}


def _form_field(body: SharedBody) -> str | None:
    """The one field that holds the answer to a form."""
    if isinstance(body, ChatBody) and body.response_format:
        if body.response_format.type == "json_schema":
            return "response_format.json_schema.schema"
        if body.response_format.type == "json_object":
            return "response_format"
    return next((name for name in _GUIDES if getattr(body, name) is not None), None)


def _one_grammar(forms: Mapping[str, Grammar]) -> Grammar | None:
    if len(forms) > 1:
        raise RequestError(
            f"{' and '.join(forms)} each hold the answer to a form: choose one", list(forms)[-1]
        )
    return next(iter(forms.values()), None)


def _dumped(value: JsonValue | Sequence[str], param: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        raise RequestError(f"{param} holds a number that is too large for JSON", param) from None


def field_of(error: ConfigError, body: SharedBody) -> str | None:
    """The field that an error is about: a parameter's message begins with it.

    Of a schema it is the field that brought it and the keyword's JSON pointer behind that; the
    pointer to a tool's is one into the body already.
    """
    if isinstance(error, GrammarError):
        if error.pointer.startswith("/tools/"):
            return error.pointer
        form = _form_field(body)
        return None if form is None else form + error.pointer
    word = str(error).partition(" ")[0].partition("_of")[0]
    return word if word in type(body).model_fields else None
