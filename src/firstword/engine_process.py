"""An engine in a process of its own: what runs in it, and the other end of its pipe.

Frames on the socket are a length (4 bytes, little-endian) and a pickled value; both ends are this
very program. Not here: what the messages mean (engine.messages).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from firstword.engine.engine import Engine
from firstword.engine.loop import EngineLoop
from firstword.engine.messages import (
    Add,
    Command,
    LoadFailed,
    Message,
    Ready,
    Shutdown,
)
from firstword.errors import FirstwordError, GrammarError
from firstword.loading import LoadOptions, engine_info, load_model
from firstword.sampling.params import Grammar

_LENGTH = struct.Struct("<I")

# Not -m: the classes of a module that runs as __main__ are not those of its import.
_PROGRAM = "from firstword.engine_process import main; main()"

_STDERR = 2

_SWITCH_SECONDS = 0.0005
"""How long the thread that reads commands may keep the engine's waiting for the interpreter."""


@dataclass(frozen=True)
class StartUp:
    """The first value that goes to the process: what to load."""

    model: str | Path | None
    options: LoadOptions


# --- in the process ---


def main() -> None:
    """Run an engine on the socket whose number is the first argument, until it is closed."""
    # Ctrl-C reaches every process of a terminal; this one ends when the other end says so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        start_up = _receive(connection)
        assert isinstance(start_up, StartUp)
        try:
            loaded = load_model(start_up.model, start_up.options)
        except FirstwordError as error:
            _send(connection, LoadFailed(error))
            return
        gc.collect()
        gc.freeze()  # what is there by now stays: no later collection walks through it
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the other end is gone
            _send(connection, Ready(engine_info(loaded)))
            _serve(connection, loaded.engine)


def _serve(connection: socket.socket, engine: Engine) -> None:
    # sendall waits when the other end does not read: then nobody gets tokens anyway.
    loop = EngineLoop(engine, lambda message: _send(connection, message))

    def read_commands() -> None:
        command: object = None
        while not isinstance(command, Shutdown):
            command = _receive(connection) or Shutdown()
            loop.post(command)  # type: ignore[arg-type]

    threading.Thread(target=read_commands, name="commands", daemon=True).start()
    # Waited for at the end: compiled code must not be cut off in the middle.
    loop.run(threading.Thread(target=_warm_up_grammars, args=(engine,), name="grammars").start)


def _warm_up_grammars(engine: Engine) -> None:
    """Compile a grammar, so that no request pays for taking the vocabulary apart.

    That takes 0.2 s for 49,000 tokens and 1.2 s for 262,000, and holds the interpreter for half
    of it: a step that comes then waits, which is why this begins when there are none.
    """
    with contextlib.suppress(GrammarError):  # no library, or no end token: requests are told
        if engine.model.compile_grammar is not None:
            engine.model.compile_grammar(Grammar("json_object"))


def _send(connection: socket.socket, value: object) -> None:
    connection.sendall(_frame(value))


def _receive(connection: socket.socket) -> object:
    """The next value; None at the end."""
    header = _receive_exactly(connection, _LENGTH.size)
    if header is None:
        return None
    body = _receive_exactly(connection, _LENGTH.unpack(header)[0])
    return None if body is None else pickle.loads(body)


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        try:
            num_bytes = connection.recv_into(view[done:])
        except ConnectionError:
            num_bytes = 0
        if num_bytes == 0:
            return None
        done += num_bytes
    return buffer


def _frame(value: object) -> bytes:
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


# --- at the other end ---


class ProcessClient:
    """Starts an engine in a process of its own, on an asyncio loop.

    Args:
        start_up: what to load.
        receive: called with each message.
    """

    def __init__(self, start_up: StartUp, receive: Callable[[Message], None]) -> None:
        self._start_up, self._receive = start_up, receive
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, once there is one."""
        return None if self._process is None else self._process.pid

    async def run(self) -> str:
        """Start the process and pass its messages on until it ends; returns how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-c", _PROGRAM, str(number)]
            self._process = subprocess.Popen(
                command, pass_fds=[number], stdin=subprocess.DEVNULL, stdout=_STDERR
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            self._write(self._start_up)
            while True:
                header = await reader.readexactly(_LENGTH.size)
                body = await reader.readexactly(_LENGTH.unpack(header)[0])
                self._receive(pickle.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer.close()
            self._writer = None
            if self._process.poll() is None:
                await asyncio.to_thread(self._end)
        return _how_it_ended(self._process.returncode)

    def _end(self) -> None:
        """Wait a moment for a process that has closed its socket; then do not wait any more."""
        assert self._process is not None
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, command: Command) -> None:
        """Send a command; one that comes after the end of the process is lost with it."""
        if isinstance(command, Add):
            # Numbers of 4 bytes travel ten times as fast as Python's.
            ids = array("i", command.prompt_token_ids)
            command = replace(command, prompt_token_ids=ids)
        self._write(command)

    def _write(self, value: object) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(_frame(value))

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def _how_it_ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
