from __future__ import annotations

import pytest
from pydantic_ai import Agent, ModelSettings, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from questions import FORM_LIMIT, LIMIT, QUESTION, WEATHER_QUESTION, City
from questions import weather as weather_of


@pytest.fixture
def chat(v1: str, model: str) -> OpenAIChatModel:
    return OpenAIChatModel(model, provider=OpenAIProvider(base_url=v1, api_key="none"))


async def test_text(chat: OpenAIChatModel) -> None:
    agent = Agent(chat, system_prompt="Be brief.", model_settings=ModelSettings(max_tokens=LIMIT))
    result = await agent.run(QUESTION)
    assert result.output
    assert result.usage.output_tokens > 0


async def test_streamed_text(chat: OpenAIChatModel) -> None:
    agent = Agent(chat, model_settings=ModelSettings(max_tokens=LIMIT, temperature=0))
    async with agent.run_stream(QUESTION) as result:
        text = "".join([piece async for piece in result.stream_text(delta=True)])
    assert text == (await agent.run(QUESTION)).output


@pytest.mark.parametrize("kind", [NativeOutput, ToolOutput])
async def test_an_output_type(
    chat: OpenAIChatModel, kind: type[NativeOutput[City]] | type[ToolOutput[City]]
) -> None:
    settings = ModelSettings(max_tokens=FORM_LIMIT)
    agent = Agent(chat, output_type=kind(City), model_settings=settings)
    assert isinstance((await agent.run(QUESTION)).output, City)


async def test_a_tool_and_an_output_type(chat: OpenAIChatModel) -> None:
    called: list[str] = []
    agent = Agent(
        chat,
        output_type=ToolOutput(City, name="answer"),
        model_settings=ModelSettings(max_tokens=FORM_LIMIT),
    )

    async def only_before_its_result(ctx, tool):  # type: ignore[no-untyped-def]
        """Offered until it was called: a model this small would call it for ever."""
        return None if called else tool

    @agent.tool_plain(prepare=only_before_its_result)
    def weather() -> str:
        """The weather in Rome."""
        called.append("Rome")
        return weather_of("Rome")

    for _ in range(8):  # which of the two a model this small calls first is chance
        result = await agent.run(WEATHER_QUESTION)
        assert isinstance(result.output, City)
        if called:
            return
    pytest.fail("the model never chose the tool")
