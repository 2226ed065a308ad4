"""Chat templates in the manner of the families that tools are used with, in few words."""

from __future__ import annotations

_CALL = '{"name": "{{ call.function.name }}", "ARGS": {{ call.function.arguments | tojson }}}'
_CALLS = (
    "{% for call in message.tool_calls %}{{ '\n' }}<tool_call>\n"
    + _CALL.replace("ARGS", "arguments")
    + "\n</tool_call>{% endfor %}"
)

QWEN = (
    "{% if tools %}<|im_start|>system\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>"
    "{# calls come in <tool_call></tool_call> #}<|im_end|>\n"
    "{% elif messages[0].role == 'system' %}"
    "<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if message.role == 'tool' %}"
    "<|im_start|>user\n<tool_response>\n{{ message.content }}\n</tool_response><|im_end|>\n"
    "{% elif message.role != 'system' or not loop.first %}"
    "<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content }}"
    f"{{% if message.tool_calls %}}{_CALLS}{{% endif %}}<|im_end|>\n{{% endif %}}{{% endfor %}}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LLAMA3 = (
    "{{ bos_token }}{% macro head(role) %}<|start_header_id|>{{ role }}<|end_header_id|>\n\n"
    "{% endmacro %}"
    "{% if tools %}{{ head('system') }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "<|eot_id|>{% endif %}"
    "{% for message in messages %}"
    "{% if message.tool_calls %}"
    "{% if message.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{% set call = message.tool_calls[0] %}"
    f"{{{{ head('assistant') }}}}{_CALL.replace('ARGS', 'parameters')}<|eot_id|>"
    "{% elif message.role == 'tool' %}"
    "{{ head('ipython') }}{{ message.content | tojson }}<|eot_id|>"
    "{% else %}{{ head(message.role) }}{{ message.content | trim }}<|eot_id|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ head('assistant') }}{% endif %}"
)

GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ message.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)

TEXT_ARGUMENTS = QWEN.replace("call.function.arguments | tojson", "call.function.arguments")
"""Wants arguments as JSON text, which it writes as it stands."""

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
