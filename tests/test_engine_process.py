from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstword.config import EngineConfig
from firstword.engine import loop as loop_module
from firstword.engine.messages import Add, LoadFailed, Message, Ready, Shutdown, StepMessage
from firstword.engine.request import RequestOptions
from firstword.engine_process import ProcessClient, StartUp, _frame, _receive, _serve
from firstword.errors import GrammarError, ModelNotFoundError
from firstword.loading import LoadOptions
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar, SamplingParams
from tests.engine.rig import rig
from tests.weights.tiny_gguf import write_tiny_llama

OPTIONS = LoadOptions(EngineConfig(enable_panel_cache=False), "exact")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def play(
    path: Path, story: Callable[[ProcessClient, list[Message]], Awaitable[None]]
) -> tuple[str, list[Message]]:
    """How a process ended that went through a story, and all it said."""
    messages: list[Message] = []

    async def run() -> str:
        client = ProcessClient(StartUp(str(path), OPTIONS), messages.append)
        running = asyncio.create_task(client.run())
        await asyncio.wait_for(story(client, messages), 30)
        return await asyncio.wait_for(running, 30)

    return asyncio.run(run()), messages


def test_values_survive_the_socket_in_whatever_pieces() -> None:
    ours, theirs = socket.socketpair()
    values = [{"a": 1}, "x" * 300_000, [1, 2]]
    with ours, theirs:
        frames = b"".join(map(_frame, values))
        sender = threading.Thread(target=ours.sendall, args=(frames,))
        sender.start()
        assert [_receive(theirs) for _ in values] == values
        sender.join()
        ours.sendall(_frame("half")[:-2])
        ours.shutdown(socket.SHUT_WR)
        assert _receive(theirs) is None


def test_a_request_goes_there_and_comes_back(path: Path) -> None:
    async def story(client: ProcessClient, messages: list[Message]) -> None:
        await until(lambda: bool(messages))
        params = SamplingParams(seed=1, max_tokens=3, ignore_eos=True)
        client.send(Add("it", (1, 2, 3), params, RequestOptions()))
        await until(lambda: any(isinstance(m, StepMessage) and m.finished for m in messages))
        client.send(Shutdown())

    how, messages = play(path, story)
    assert how == "ended with status 0"
    assert isinstance(messages[0], Ready)
    outputs = [o for m in messages if isinstance(m, StepMessage) for o in m.outputs]
    assert len(outputs) == 3


def test_ctrl_c_in_the_terminal_is_for_the_other_end(path: Path) -> None:
    async def story(client: ProcessClient, messages: list[Message]) -> None:
        await until(lambda: bool(messages))
        assert client.pid is not None
        os.kill(client.pid, signal.SIGINT)
        client.send(Add("it", (1,), SamplingParams(seed=1, max_tokens=1), RequestOptions()))
        await until(lambda: len(messages) > 1)
        client.send(Shutdown())

    assert play(path, story)[0] == "ended with status 0"


def test_a_kill_is_named(path: Path) -> None:
    async def story(client: ProcessClient, messages: list[Message]) -> None:
        await until(lambda: bool(messages))
        client.kill()

    assert play(path, story)[0] == "ended by SIGKILL"


def test_what_cannot_be_loaded_comes_back_as_its_error(tmp_path: Path) -> None:
    async def story(client: ProcessClient, messages: list[Message]) -> None:
        await until(lambda: bool(messages))

    how, messages = play(tmp_path / "none.gguf", story)
    assert how == "ended with status 0"
    assert isinstance(messages[0], LoadFailed)
    assert isinstance(messages[0].error, ModelNotFoundError)


def test_the_process_ends_with_its_other_end(path: Path) -> None:
    async def story(client: ProcessClient, messages: list[Message]) -> None:
        await until(lambda: bool(messages))
        assert client._writer is not None
        client._writer.close()

    assert play(path, story)[0] == "ended with status 0"


def test_p07_an_idle_engine_prepares_for_grammars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    compiled: list[Grammar] = []

    def compile_grammar(grammar: Grammar) -> TokenConstraint:
        compiled.append(grammar)
        ours.close()  # the end of the process
        raise GrammarError("the library is missing")

    engine = rig().engine
    engine.model = replace(engine.model, compile_grammar=compile_grammar)
    with ours, theirs:
        _serve(theirs, engine)
    assert compiled == [Grammar("json_object")]
