from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from firstword.server.chat import ChatService
from firstword.server.tokenization import router
from tests.server.fake_llm import FakeAsyncLLM

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def llm() -> FakeAsyncLLM:
    return FakeAsyncLLM()


@pytest.fixture
def client(llm: FakeAsyncLLM) -> TestClient:
    app = FastAPI()
    app.include_router(router(ChatService(llm)))
    return TestClient(app)


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


def problem(client: TestClient, path: str, status: int = 400, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_prompt(client: TestClient, llm: FakeAsyncLLM) -> None:
    told = post(client, "/tokenize", prompt="Hi", model=llm.name)
    ids = llm.tokenizer.encode("Hi")
    assert told == {"count": 2, "max_model_len": 1000, "tokens": ids, "token_strs": None}


def test_the_text_of_each_token(client: TestClient) -> None:
    told = post(client, "/tokenize", prompt="Hi<|im_end|>", return_token_strs=True)
    assert told["token_strs"] == ["H", "i", "<|im_end|>"]


def test_an_empty_prompt(client: TestClient) -> None:
    assert post(client, "/tokenize", prompt="", add_special_tokens=False)["tokens"] == []


def test_special_tokens_can_be_left_out(client: TestClient, llm: FakeAsyncLLM) -> None:
    llm.tokenizer.add_bos, llm.tokenizer.bos_id = True, 7
    with_bos = FakeAsyncLLM.encode

    async def encode(prompt: Any, **variables: object) -> Any:
        encoded = await with_bos(llm, prompt, **variables)
        return type(encoded)((7, *encoded.token_ids), encoded.text, encoded.num_typed_tokens)

    llm.encode = encode  # type: ignore[method-assign]
    assert post(client, "/tokenize", prompt="Hi")["tokens"][0] == 7
    assert post(client, "/tokenize", prompt="Hi", add_special_tokens=False)["count"] == 2


def test_a_conversation_as_the_model_reads_it(client: TestClient, llm: FakeAsyncLLM) -> None:
    told = post(client, "/tokenize", messages=MESSAGES)
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert told["tokens"] == llm.tokenizer.encode(text, parse_special=True)
    bare = post(client, "/tokenize", messages=MESSAGES, add_generation_prompt=False)
    assert told["count"] > bare["count"]
    assert told["tokens"][: bare["count"]] == bare["tokens"]


def test_tools_are_counted(client: TestClient) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    with_tool = post(client, "/tokenize", messages=MESSAGES, tools=[tool])
    assert with_tool["count"] > post(client, "/tokenize", messages=MESSAGES)["count"]


def test_there_and_back(client: TestClient) -> None:
    text = "日本 <|im_end|> é"
    tokens = post(client, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    assert post(client, "/detokenize", tokens=tokens) == {"prompt": text}
    assert post(client, "/detokenize", tokens=[]) == {"prompt": ""}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": MESSAGES}, "prompt"),
        ({"prompt": "a", "tools": []}, "tools"),
        ({"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt"),
        ({"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": "a", "colour": 1}, "colour"),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(
    client: TestClient, body: dict[str, Any], param: str
) -> None:
    assert problem(client, "/tokenize", **body)["param"] == param


def test_ids_that_the_model_does_not_have_are_refused(client: TestClient) -> None:
    error = problem(client, "/detokenize", tokens=[1, 100_000])
    assert error["param"] == "tokens[1]"
    assert "100000" in error["message"]
    assert problem(client, "/detokenize", tokens=[-1])["param"] == "tokens[0]"
    assert problem(client, "/detokenize", tokens=[2**40])["param"] == "tokens[0]"


def test_another_model_is_not_found(client: TestClient) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert problem(client, path, 404, model="x", **body)["code"] == "model_not_found"
