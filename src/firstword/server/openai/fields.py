"""Every field of the request bodies, and what becomes of it: the table that docs/api.md shows.

Not here: the types and limits of the supported ones (schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from firstword.server.errors import UnsupportedFieldError

Decision = Literal["supported", "refused", "inert"]


@dataclass(frozen=True)
class Field:
    """What becomes of one field.

    Args:
        name: as the body has it.
        decision: "supported"; "refused" with a 400, since it would change the output and is not
            built; "inert": any value is taken, since none changes the output.
        note: what it does, or why it is not supported and what to use instead.
        harmless: values of a refused field that change nothing, so that they are taken.
    """

    name: str
    decision: Decision
    note: str
    harmless: tuple[object, ...] = ()


def _supported(**notes: str) -> tuple[Field, ...]:
    return tuple(Field(name, "supported", note) for name, note in notes.items())


def _inert(**notes: str) -> tuple[Field, ...]:
    return tuple(Field(name, "inert", note) for name, note in notes.items())


_SAMPLING = _supported(
    temperature="0 to 100, default 1; 0 takes the most probable token",
    top_p="0 to 1, default 1; 0 takes the most probable token",
    top_k="default 0, which is all",
    seed="-2^63 to 2^64 - 1, negative ones modulo 2^64; default: one is chosen",
    n="samples of one prompt, default 1",
    stop="up to 64 strings; the text ends before the first that appears",
    stop_token_ids="token ids that end the output",
    min_tokens="tokens before which nothing ends the output",
    ignore_eos="go on after the model's own end tokens",
    logit_bias="token id to a number from -100 to 100, added to the logits",
    presence_penalty="-2 to 2",
    frequency_penalty="-2 to 2",
    repetition_penalty="above 0, up to 10; default 1, which is none",
    penalty_scope="`output` (default, as the API says) or `all`: whether the penalties count the "
    "prompt too",
    skip_special_tokens="default true: control tokens leave no text",
)
_FORMS = _supported(
    guided_json="JSON schema, as an object or as text, that the answer satisfies",
    guided_regex="regular expression that the answer matches",
    guided_choice="list of strings, one of which is the answer",
    guided_grammar="grammar of the answer, in llguidance's Lark dialect",
)
_SERVING = _supported(
    priority="-100 to 100, default 0; higher goes first",
    cache_salt="requests of different salts share no cached prompt",
    stream="send the answer as it comes",
    stream_options="`include_usage`, `continuous_usage_stats`; `include_obfuscation` is inert",
    return_progress="with `stream`: chunks with `prompt_progress` while the prompt is read",
    return_resolved="add `resolved`: every parameter in force, the seed included",
    return_prompt_token_ids="with `return_resolved`: the prompt's token ids too",
)
_INERT = _inert(
    user="who asks is known by the API key",
    metadata="nothing is stored",
    store="nothing is stored",
    service_tier="there is one tier; see `priority`",
    safety_identifier="nothing is reported to anybody",
    prompt_cache_key="cached prompts are found by their tokens",
    prompt_cache_retention="cached prompts stay as long as there is room",
    prompt_cache_options="cached prompts stay as long as there is room",
)

CHAT_FIELDS: tuple[Field, ...] = (
    *_supported(
        model="the served model's name; another is a 404",
        messages="roles system, developer (read as system), user, assistant, tool; text only",
        max_completion_tokens="default: the rest of the context",
        max_tokens="older name of `max_completion_tokens`",
        logprobs="true: the model's log probability of each token",
        top_logprobs="0 to 50, with `logprobs`: the most probable tokens",
        tools="functions; `strict` holds where `tool_choice` makes a call certain",
        tool_choice="`none`, `auto`, `required`, or one function",
        parallel_tool_calls="false: at most one call, where `tool_choice` makes a call certain",
        response_format="`text`, `json_object` or `json_schema`; not together with `tools`",
        reasoning_effort="where the model's chat template reads it; `none` also sets "
        "`enable_thinking` to false; refused elsewhere",
        chat_template_kwargs="further variables of the chat template",
        separate_reasoning="default true: reasoning comes as `reasoning_content`",
    ),
    *_SAMPLING,
    *_FORMS,
    *_SERVING,
    Field("audio", "refused", "no model here speaks"),
    Field("modalities", "refused", "text only", harmless=(["text"],)),
    Field("functions", "refused", "use `tools`", harmless=([],)),
    Field("function_call", "refused", "use `tool_choice`"),
    Field("verbosity", "refused", "say it in a message", harmless=("medium",)),
    Field("web_search_options", "refused", "nothing is searched"),
    Field("moderation", "refused", "nothing is moderated"),
    *_inert(prediction="it would only make an answer faster"),
    *_INERT,
)

COMPLETION_FIELDS: tuple[Field, ...] = (
    *_supported(
        model="the served model's name; another is a 404",
        prompt="text, token ids, or a list of up to 128 of either; control strings in text are "
        "control tokens",
        max_tokens="default 16, as the API says",
        logprobs="0 to 50: the model's log probability of each token, and the most probable ones",
    ),
    *_SAMPLING,
    *_FORMS,
    *_SERVING,
    Field("echo", "refused", "put the prompt before the text yourself", harmless=(False,)),
    Field("suffix", "refused", "nothing is filled in", harmless=("",)),
    Field("best_of", "refused", "use `n` and choose yourself", harmless=(1,)),
    *_INERT,
)


def drop_unsupported(body: Mapping[str, object], fields: tuple[Field, ...]) -> dict[str, object]:
    """The supported fields of a body that are not null.

    Args:
        body: a request's JSON object.
        fields: all that such a body may have.

    Raises:
        UnsupportedFieldError: a field is refused, or unknown; names it and what to do.
    """
    known = {field.name: field for field in fields}
    kept = {}
    for name, value in body.items():
        field = known.get(name)
        if field is None:
            raise UnsupportedFieldError(
                f"unknown field {name!r}: {_advice(name, fields)}", name, "unknown_parameter"
            )
        if value is None or field.decision == "inert" or value in field.harmless:
            continue
        if field.decision == "refused":
            raise UnsupportedFieldError(f"{name} is not supported: {field.note}", name)
        kept[name] = value
    return kept


def _advice(name: str, fields: tuple[Field, ...]) -> str:
    from difflib import get_close_matches  # only when there is a mistake to explain

    names = [field.name for field in fields if field.decision != "refused"]
    close = get_close_matches(name[:64], names, n=1)
    return f"did you mean {close[0]!r}?" if close else "leave it out; docs/api.md lists all fields"
