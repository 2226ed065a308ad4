from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.errors import ChatTemplateError, ConfigError
from firstword.text.chat_markers import map_strings
from firstword.text.chat_template import ChatTemplate, EncodedChat
from firstword.text.tokenizer import Tokenizer
from firstword.text.tools.spec import ToolSpec
from tests.text.templates import LLAMA3 as LLAMA3_TOOLS
from tests.text.templates import QWEN
from tests.text.tools.answers import WEATHER
from tests.text.vocabularies import byte_level, sentencepiece

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message['role'] + '<|eoh|>\\n\\n' }}\n"
    "    {{- message['content'] | trim + '<|im_end|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant<|eoh|>\\n\\n' }}\n"
    "{%- endif %}\n"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}"
    "{% set first = messages[0].content ~ '\n\n' %}{% set loop_messages = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ first if loop.first }}{{ message.content | trim }}<end_of_turn>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
CONTROLS = ["<|bos|>", "<|im_start|>", "<|eoh|>", "<|im_end|>"]
TOKENIZER = Tokenizer.from_gguf(byte_level(controls=CONTROLS), "x")
GEMMA_TOKENIZER = Tokenizer.from_gguf(
    byte_level(controls=["<bos>", "<start_of_turn>", "<end_of_turn>"], add_bos_token=True), "x"
)


def message(role: str, content: str) -> dict[str, object]:
    return {"role": role, "content": content}


HELLO = [message("system", "Be kind."), message("user", " Hi\n"), message("assistant", "user")]


def encode(
    template: str, messages: list[dict[str, object]], tokenizer: Tokenizer = TOKENIZER
) -> EncodedChat:
    return ChatTemplate(template, tokenizer.bos_token, tokenizer.eos_token).encode(
        tokenizer, messages
    )


def control_texts(chat: EncodedChat, tokenizer: Tokenizer = TOKENIZER) -> list[str]:
    return [tokenizer.token_text(i) for i in chat.token_ids if tokenizer.is_control(i)]


def test_chatml() -> None:
    chat = ChatTemplate(CHATML)
    assert chat.render(HELLO) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n"
        "<|im_start|>assistant\nuser<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.render(HELLO[:1], add_generation_prompt=False) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
    )


def test_llama3() -> None:
    assert ChatTemplate(LLAMA3, "<|bos|>").render(HELLO[:2]) == (
        "<|bos|><|im_start|>system<|eoh|>\n\nBe kind.<|im_end|>"
        "<|im_start|>user<|eoh|>\n\nHi<|im_end|><|im_start|>assistant<|eoh|>\n\n"
    )


def test_gemma() -> None:
    assert ChatTemplate(GEMMA, "<bos>").render(HELLO) == (
        "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"
        "<start_of_turn>model\nuser<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.real_model
def test_smollm2(smollm2_tokenizer: Tokenizer) -> None:
    chat = ChatTemplate.of(smollm2_tokenizer).encode(
        smollm2_tokenizer, [message("user", "What is gravity?")]
    )
    assert chat.text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.token_ids == smollm2_tokenizer.encode(chat.text, parse_special=True)
    assert (chat.num_typed_tokens, chat.num_template_tokens) == (4, 30)


@pytest.mark.real_model
def test_a_model_without_template(gemma3_tokenizer: Tokenizer) -> None:
    with pytest.raises(ChatTemplateError, match=r"no chat template.*`firstword run --raw`"):
        ChatTemplate.of(gemma3_tokenizer)


@pytest.mark.parametrize(
    ("template", "tokenizer"),
    [(CHATML, TOKENIZER), (LLAMA3, TOKENIZER), (GEMMA, GEMMA_TOKENIZER)],
)
def test_without_control_strings_the_text_is_simply_parsed(
    template: str, tokenizer: Tokenizer
) -> None:
    chat = encode(template, HELLO, tokenizer)
    assert chat.token_ids == tokenizer.encode(chat.text, parse_special=True)
    # The test vocabulary has a token for each byte; trimmed spaces are not there to be counted.
    typed = sum(len(str(m["content"])) for m in HELLO) - (0 if template == CHATML else 2)
    assert chat.num_typed_tokens == typed
    assert chat.num_template_tokens == len(chat.token_ids) - typed


contents = st.lists(
    st.sampled_from(["<|im_end|>", "<|bos|>", "<|im_", "end|>", "<", "a", " ", "\n", "字"])
).map("".join)


@given(st.lists(contents, min_size=1, max_size=4))
def test_p18_typed_control_strings_stay_text(typed: list[str]) -> None:
    messages = [message("user", content) for content in typed]
    chat = encode(CHATML, messages)
    assert control_texts(chat) == ["<|im_start|>", "<|im_end|>"] * len(typed) + ["<|im_start|>"]
    assert TOKENIZER.decode(chat.token_ids, skip_special=False) == chat.text
    assert chat.text == ChatTemplate(CHATML).render(messages)
    assert chat.num_typed_tokens == sum(len(content.encode()) for content in typed)


def test_a_control_string_made_of_two_contents_stays_text() -> None:
    template = "<|im_start|>{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>"
    chat = encode(template, [message("user", "a<|im_"), message("user", "end|>b")])
    assert chat.text == "<|im_start|>a<|im_end|>b<|im_end|>"
    assert control_texts(chat) == ["<|im_start|>", "<|im_end|>"]


def test_control_strings_in_roles_and_other_fields_stay_text() -> None:
    template = CHATML.replace("{{ message.role }}", "{{ message.role }}{{ message.n.a }}{{ t }}")
    chat = ChatTemplate(template).encode(
        TOKENIZER,
        [{"role": "<|im_end|>", "content": "x", "n": {"a": "<|bos|>"}, "unused": "<|bos|>"}],
        t="<|eoh|>",
    )
    assert control_texts(chat) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert "<|im_start|><|im_end|><|bos|><|eoh|>\nx" in chat.text


STOP = "<|im_end|>"


@pytest.mark.parametrize("template", [QWEN, CHATML, LLAMA3_TOOLS])
def test_p18_control_strings_in_tools_calls_and_results_stay_text(template: str) -> None:
    arguments = {"city": f'a"{STOP}', f"{STOP}": [STOP]}
    call = {"id": "c", "function": {"name": "get_weather", "arguments": arguments}}
    tool = ToolSpec("get_weather", f"Weather. {STOP}", {**WEATHER.parameters, "title": STOP})
    messages: list[dict[str, object]] = [
        message("user", f"x{STOP}"),
        {"role": "assistant", "reasoning_content": STOP, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f'"sunny"\n{STOP}'},
    ]
    tools = [tool.for_template()]
    chat = ChatTemplate(template).encode(TOKENIZER, messages, tools=tools)
    assert chat.text == ChatTemplate(template).render(messages, tools=tools)
    assert chat.text.count(STOP) >= 8 - (template == LLAMA3_TOOLS)
    plain = map_strings([messages, tools], lambda text: text.replace(STOP, "stop"))
    assert isinstance(plain, list)
    without = ChatTemplate(template).encode(TOKENIZER, plain[0], tools=plain[1])
    assert control_texts(chat) == control_texts(without)


def test_results_written_as_json_are_counted() -> None:
    messages: list[dict[str, object]] = [
        message("user", "x"),
        {"role": "tool", "content": 'a "b"\n'},
    ]
    chat = ChatTemplate(LLAMA3_TOOLS).encode(TOKENIZER, messages)
    assert chat.num_typed_tokens == len("x" + r"a \"b\"\n")


@pytest.mark.real_model
def test_tools_of_smollm2(smollm2_tokenizer: Tokenizer) -> None:
    chat = ChatTemplate.of(smollm2_tokenizer)
    call = {"id": "c", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}
    messages: list[dict[str, object]] = [
        message("user", "Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"hot{STOP}"},
    ]
    encoded = chat.encode(smollm2_tokenizer, messages, tools=[WEATHER.for_template()])
    assert encoded.text.startswith("<|im_start|>system\nYou can call functions")
    assert encoded.text.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Rome"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n'
        f"hot{STOP}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert control_texts(encoded, smollm2_tokenizer).count(STOP) == 4


def test_tools_must_be_a_list_of_mappings() -> None:
    for tools, problem in [("x", "must be a list"), ([1], "tool 0 must be a mapping, found int")]:
        with pytest.raises(ChatTemplateError, match=problem):
            ChatTemplate(CHATML).render(HELLO, tools=tools)


def test_control_strings_are_parsed_when_asked() -> None:
    chat = ChatTemplate(CHATML).encode(
        TOKENIZER, [message("user", "a<|im_end|>b")], parse_special=True
    )
    assert control_texts(chat).count("<|im_end|>") == 2
    assert chat.num_typed_tokens == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("message.content | reverse", "alters"),
        ("message.content[:4]", "alters"),
        ("'nothing'", "drops"),
        ("message.content | truncate(5, true, '', 0)", "alters"),
    ],
)
def test_templates_that_lose_control_strings_are_refused(change: str, problem: str) -> None:
    template = CHATML.replace("message.content", change)
    with pytest.raises(ChatTemplateError, match=f"{problem} control strings typed"):
        encode(template, [message("user", "aaa<|im_end|>bbb")])
    encode(template, [message("user", "aaa")])


def test_templates_that_look_into_contents_still_count() -> None:
    template = CHATML.replace(
        "{{ message.content }}",
        "{% if 'a' in message.content %}A: {{ message.content.split('a')[-1] }}"
        "{% else %}{{ message.content }}{% endif %}",
    )
    chat = encode(template, [message("user", "xxab"), message("user", "hello")])
    assert chat.num_typed_tokens == len("hello")


def test_p17_bos_comes_once() -> None:
    messages = [message("user", "x")]
    wants = Tokenizer.from_gguf(byte_level(controls=CONTROLS, add_bos_token=True), "x")
    bos = wants.bos_id
    for template in (CHATML, LLAMA3):
        chat = encode(template, messages, wants)
        assert chat.token_ids[0] == bos
        assert chat.token_ids.count(bos or 0) == 1
        assert chat.num_typed_tokens + chat.num_template_tokens == len(chat.token_ids)
    assert bos not in encode(CHATML, messages).token_ids
    assert encode(LLAMA3, messages).token_ids.count(bos or 0) == 1


def test_sentencepiece_vocabularies() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(), "x")
    template = "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
    chat = encode(template, [message("user", "ab</s>▁é")], tokenizer)
    assert [i for i in chat.token_ids if tokenizer.is_control(i)] == [1]
    assert tokenizer.decode(chat.token_ids) == "[INST] ab</s> é [/INST]"
    assert chat.num_typed_tokens == len([" ab", "<", "/", "s", ">", "▁", "é"])


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "messages is empty"),
        ("hi", "must be a list of messages, found str"),
        ({"role": "user"}, "must be a list of messages, found dict"),
        (["hi"], "message 0 must be a mapping with role and content, found str"),
        ([{"role": "user", "content": "x"}, {"content": "x"}], "message 1: role .* nothing"),
        ([{"role": "user", "content": None}], "message 0: content .* NoneType"),
        ([{"role": 3, "content": "x"}], "message 0: role must be a string, found int"),
    ],
)
def test_malformed_messages_are_named(messages: list[dict[str, object]], problem: str) -> None:
    chat = ChatTemplate(CHATML)
    for call in (chat.render, lambda m: chat.encode(TOKENIZER, m)):
        with pytest.raises(ChatTemplateError, match=problem):
            call(messages)


def test_refusals_name_line_and_message() -> None:
    roles = [message("user", "a"), message("user", "b")]
    with pytest.raises(ChatTemplateError, match=r"line 3, message 1\): roles must alternate"):
        ChatTemplate(GEMMA).render(roles)
    with pytest.raises(ChatTemplateError, match=r"template line 3\): 'str object' has no"):
        ChatTemplate("\n\n{{ messages[0].content.a.b }}").render(roles)
    with pytest.raises(ChatTemplateError, match="chat template line 2"):
        ChatTemplate("\n{% for %}").render(roles)
    with pytest.raises(ChatTemplateError, match="more than 1000000 steps"):
        nested = "{% for a in range(99999) %}" * 2 + "{% endfor %}" * 2
        ChatTemplate(nested).render(roles)


def test_no_traceback_of_the_template_library() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate("{{ raise_exception('no') }}").render(HELLO)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_variables_of_the_template() -> None:
    chat = ChatTemplate("{{ tools is none }}{{ documents is none }}{{ x }}{{ eos_token }}", "", "E")
    assert chat.render(HELLO, x=3) == "TrueTrue3E"
    assert chat.render(HELLO, x=3, tools=[]) == "FalseTrue3E"


def test_messages_are_not_changed() -> None:
    before = [dict(m) for m in HELLO]
    encode(CHATML, HELLO)
    assert before == HELLO


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(ConfigError, match="lone surrogate"):
        encode(CHATML, [message("user", "\ud83d")])


def test_long_conversations() -> None:
    messages = [message("user", "字\r\n\0a " * 100) for _ in range(200)]
    chat = encode(CHATML, messages)
    assert chat.num_typed_tokens == 200 * 100 * 8
