"""What a person sees beside the answer: progress and notes, on stderr only."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstword.engine.outputs import RequestOutput
    from firstword.trace.events import Event


class StatusLine:
    """One line of progress on stderr, rewritten in place; silent where that is no terminal."""

    def __init__(self) -> None:
        self._enabled = sys.stderr.isatty()
        self._shown = False

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it."""
        return self._enabled

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._enabled:
            width = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r\x1b[K{text[: max(width - 1, 1)]}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Remove the line, so that what follows stands alone."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()


class PromptProgress:
    """Shows how much of the prompt has been read, from the engine's events."""

    def __init__(self, status: StatusLine) -> None:
        self._status = status
        self._total = 0
        self._done = 0

    def __call__(self, event: Event) -> None:
        """Take part as a listener of a recorder."""
        from firstword.trace import events

        match event:
            case events.RequestQueued():
                self._total, self._done = event.num_prompt_tokens, 0
            case events.PrefixMatched():
                self._done = event.num_cached_tokens
            case events.StepExecuted():
                self._done += sum(chunk.num_tokens for chunk in event.chunks)
            case _:
                return
        if self._done < self._total:
            self._status.show(f"reading the prompt: {self._done} of {self._total} tokens")


def note(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


def write_answer(text: str) -> None:
    """A piece of the answer on stdout, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def format_bytes(num_bytes: float) -> str:
    """Bytes for people: 131,072 becomes "128 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(num_bytes) >= 1024 and len(units) > 1:
        num_bytes /= 1024
        del units[0]
    digits = 0 if num_bytes == int(num_bytes) else 1
    return f"{num_bytes:.{digits}f} {units[0]}"


def note_stats(output: RequestOutput) -> None:
    """Counts and times of a finished request on stderr; below, why more of it was not reused."""
    note(stats_line(output))
    if output.cache_miss is not None:
        note(output.cache_miss.in_words())


def stats_line(output: RequestOutput) -> str:
    """Counts and times of a finished request, in one line."""
    metrics = output.metrics
    cached = f"{metrics.num_cached_tokens:,} cached"
    if metrics.sources.disk:
        cached += f", {metrics.sources.disk:,} from disk"
    parts = [
        f"prompt {output.num_prompt_tokens:,} tokens ({cached})",
        f"output {output.num_output_tokens} tokens",
    ]
    if metrics.ttft is not None:
        parts.append(f"first word after {metrics.ttft:.2f} s")
    speed = metrics.tokens_per_second(output.num_output_tokens)
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s")
    parts += [f"K/V {format_bytes(metrics.kv_bytes)}", f"seed {output.seed}"]
    return " · ".join(parts)
