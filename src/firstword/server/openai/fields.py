"""Every field of the request bodies, and what becomes of it: the table that docs/api.md shows.

Not here: the types and limits of the supported ones (schema).
"""

from __future__ import annotations

from firstword.server.fields import Field, inert, supported

_SAMPLING = supported(
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
_FORMS = supported(
    guided_json="JSON schema, as an object or as text, that the answer satisfies",
    guided_regex="regular expression that the answer matches",
    guided_choice="list of strings, one of which is the answer",
    guided_grammar="grammar of the answer, in llguidance's Lark dialect",
)
_SERVING = supported(
    priority="-100 to 100, default 0; higher goes first",
    cache_salt="requests of different salts share no cached prompt, on the disk neither",
    store="default true: what was read stays on this machine's disk, for a faster start next time; "
    "false: nothing of this request is written there (`--kv-disk 0`: of none)",
    stream="send the answer as it comes",
    stream_options="`include_usage`, `continuous_usage_stats`; `include_obfuscation` is inert",
    return_progress="with `stream`: chunks with `prompt_progress` while the prompt is read",
    return_resolved="add `resolved`: every parameter in force, the seed included",
    return_prompt_token_ids="with `return_resolved`: the prompt's token ids too",
)
_INERT = inert(
    user="who asks is known by the API key",
    metadata="it changes no answer",
    service_tier="there is one tier; see `priority`",
    safety_identifier="nothing is reported to anybody",
    prompt_cache_key="cached prompts are found by their tokens",
    prompt_cache_retention="cached prompts stay as long as there is room",
    prompt_cache_options="cached prompts stay as long as there is room",
)

CHAT_FIELDS: tuple[Field, ...] = (
    *supported(
        model="the served model's name, which is the default; another is a 404",
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
    *inert(prediction="it would only make an answer faster"),
    *_INERT,
)

COMPLETION_FIELDS: tuple[Field, ...] = (
    *supported(
        model="the served model's name, which is the default; another is a 404",
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
