"""Runs an engine on one thread while others send it commands; one message out for each step.

Not here: what a step is (engine) and how messages travel (async_llm, engine_process).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from firstword.engine.engine import Engine
from firstword.engine.messages import (
    Abort,
    Accepted,
    Add,
    Command,
    Finished,
    Progressed,
    Refused,
    Shutdown,
    StepMessage,
    Stop,
)
from firstword.engine.preparation import Prepared
from firstword.errors import FirstwordError, StepStoppedError

_log = logging.getLogger("firstword.engine")

_Task = Prepared | Refused | Abort | Stop | Shutdown

_TRIES = 2
"""Runs of a step that fails for no reason known, before the requests in it are given up."""

_IDLE_SECONDS = 1.0
"""Without anything to do, before work is begun that can wait."""

_SAVING_SECONDS = 0.02
"""Between two tries to hand over KV blocks while there is nothing else to do."""


class EngineLoop:
    """The thread of an engine.

    Args:
        engine: runs the model; from `run` on no other thread may use it.
        deliver: called on the loop's thread with each message; must not block.
    """

    def __init__(self, engine: Engine, deliver: Callable[[StepMessage], None]) -> None:
        self._engine, self._deliver = engine, deliver
        self._commands: deque[_Task] = deque()
        self._wake = threading.Event()
        self._message = StepMessage.empty()
        self._num_failures = 0
        self._has_aborted = False  # since the last message
        self._is_open = True

    def post(self, command: Command) -> None:
        """Send a command; any thread may.

        A request is checked here, while a step runs on the loop's thread. An abort also ends a
        long step that is under way.
        """
        if isinstance(command, Abort):
            self._engine.interrupt(command.request_id)
        self._commands.append(self._prepare(command) if isinstance(command, Add) else command)
        self._wake.set()

    def _prepare(self, add: Add) -> Prepared | Refused:
        try:
            return self._engine.prepare(
                add.request_id, add.prompt_token_ids, add.params, add.options
            )
        except FirstwordError as error:
            return Refused(add.request_id, error)

    def run(self, when_idle: Callable[[], None] | None = None) -> None:
        """Carry out commands and steps until `Shutdown`; sleeps while there is nothing to do.

        Args:
            when_idle: called once, the first time that nothing comes for a second; must not block.
        """
        while self._is_open:
            while self._engine.save_blocks():  # what the disk had no time for before
                if self._wake.wait(_SAVING_SECONDS):
                    break
            if when_idle is not None and not self._wake.wait(_IDLE_SECONDS):
                when_idle()
                when_idle = None
            self._wake.wait()
            self._wake.clear()  # before the commands are taken: none that comes now is missed
            while self._turn():
                pass

    def _turn(self) -> bool:
        """Commands, then a step. Returns whether there is more to do."""
        while self._commands and self._is_open:
            self._carry_out(self._commands.popleft())
        if self._has_aborted:  # what was given back is told before a step that may be long
            self._send()
        if self._is_open and self._engine.has_work:
            self._step()
        self._send()
        return self._is_open and (bool(self._commands) or self._engine.has_work)

    def _send(self) -> None:
        message = self._message
        is_news = message.replies or message.progress or message.outputs or message.finished
        if is_news or self._has_aborted:
            self._message, self._has_aborted = StepMessage.empty(), False
            self._deliver(message._replace(stats=self._engine.stats))

    # --- commands ---

    def _carry_out(self, command: _Task) -> None:
        match command:
            case Prepared():
                self._message.replies.append(self._enqueue(command))
            case Refused():
                self._message.replies.append(command)
            case Abort(request_id):
                self._has_aborted |= self._engine.knows(request_id)
                self._engine.forget(request_id)
            case Stop(request_id, index, stop_string):
                if self._engine.knows(request_id):
                    self._engine.stop(request_id, index, stop_string)
                    self._finish(request_id)
            case Shutdown():
                self._is_open = False

    def _enqueue(self, prepared: Prepared) -> Accepted | Refused:
        request_id = prepared.request.request_id
        num_ahead = self._engine.scheduler.num_waiting
        try:
            return Accepted(request_id, self._engine.enqueue(prepared), num_ahead)
        except FirstwordError as error:
            return Refused(request_id, error)

    def _finish(self, request_id: str) -> None:
        """Report a request of which every sample has ended; the engine forgets it."""
        if self._engine.is_finished(request_id):
            self._message.finished.append(Finished(request_id, self._engine.release(request_id)))

    # --- steps ---

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except StepStoppedError:
            return
        except Exception as error:
            self._num_failures += 1
            _log.exception("a step failed (%d of %d tries)", self._num_failures, _TRIES)
            if self._num_failures >= _TRIES:
                self._give_up(error)
            return
        self._num_failures = 0
        for output in outputs:
            if output.error is not None:
                self._engine.forget(output.request_id)
                self._message.replies.append(Refused(output.request_id, output.error))
            elif self._engine.knows(output.request_id):
                self._message.outputs.append(output)
                if output.finish_reason is not None:
                    self._finish(output.request_id)
        self._message.progress.extend(Progressed(*item) for item in self._engine.progress())
        self._message = self._message._replace(gap_ms=self._engine.gap_ms)

    def _give_up(self, error: Exception) -> None:
        """End the requests of a step that cannot be run; nobody can tell whose fault it is."""
        self._num_failures = 0
        for request_id in self._engine.in_step:
            self._engine.forget(request_id)
            problem = FirstwordError(f"the step could not be run: {type(error).__name__}: {error}")
            self._message.replies.append(Refused(request_id, problem))
