"""An engine on a thread of this process, beside an asyncio loop.

Not here: an engine whose steps do not share an interpreter with others (engine_process).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from firstword.engine.loop import EngineLoop
from firstword.engine.messages import Command, LoadFailed, Message, Ready, Shutdown
from firstword.errors import FirstwordError
from firstword.loading import LoadOptions, engine_info, load_model
from firstword.trace.recorder import Recorder


class ThreadClient:
    """Loads a model and runs its engine on a thread.

    Args:
        model: as for `loading.load_model`.
        options: how to load it.
        receive: called on the asyncio loop with each message.
        recorder: receives the events of every request, on the engine's thread; None keeps none.
    """

    def __init__(
        self,
        model: str | None,
        options: LoadOptions,
        receive: Callable[[Message], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._model, self._options = model, options
        self._receive, self._recorder = receive, recorder
        self._engine_loop: EngineLoop | None = None

    async def run(self) -> str:
        """Start the thread and pass its messages on until it ends; returns how it ended."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        problem = "was shut down"

        def deliver(message: Message) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(self._receive, message)

        def body() -> None:
            nonlocal problem
            try:
                self._load_and_run(deliver)
            except Exception as error:
                problem = f"ended with {type(error).__name__}: {error}"
            finally:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(over.set)

        threading.Thread(target=body, name="engine", daemon=True).start()
        await over.wait()
        self._engine_loop = None
        return problem

    def _load_and_run(self, deliver: Callable[[Message], None]) -> None:
        try:
            loaded = load_model(self._model, self._options, self._recorder)
        except FirstwordError as error:
            deliver(LoadFailed(error))
            return
        self._engine_loop = EngineLoop(loaded.engine, deliver)
        deliver(Ready(engine_info(loaded)))
        self._engine_loop.run()

    def send(self, command: Command) -> None:
        """Send a command; one that comes after the end of the thread is lost."""
        if self._engine_loop is not None:
            self._engine_loop.post(command)

    def kill(self) -> None:
        """Ask the thread to end; it does so after the step under way."""
        self.send(Shutdown())
