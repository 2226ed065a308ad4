"""`firstword chat`: a conversation, each turn reusing what was read before."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firstword.cli import options
from firstword.cli.run import load_model
from firstword.cli.terminal import StatusLine, note, note_stats, write_answer
from firstword.errors import ChatTemplateError, FirstwordError

if TYPE_CHECKING:
    from firstword.engine.outputs import RequestOutput
    from firstword.llm import LLM
    from firstword.sampling.params import SamplingParams

_HELP = """/reset         forget the conversation
/system TEXT   set the instruction and start again; without TEXT remove it
/help          this list
/quit          leave (so does Ctrl-D)
Ctrl-C stops an answer. A line that ends with \\ goes on in the next."""


def chat(
    model: options.Model = None,
    preset: options.Preset = "chat",
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    max_tokens: options.MaxTokens = options.MAX_TOKENS,
    stop: options.Stop = None,
    system: options.System = None,
    raw: options.Raw = False,
    stats: options.Stats = False,
    threads: options.Threads = None,
    context: options.Context = None,
    numerics: options.Numerics = None,
    panel_cache: options.PanelCache = True,
    kv_type: options.KVType = "f16",
    kv_disk: options.KVDisk = None,
) -> None:
    """Talk with a model; /help lists the commands."""
    params = options.sampling_params(
        preset,
        max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
    )
    with StatusLine() as status:
        machine = options.Machine(threads, numerics, panel_cache, kv_disk, kv_type)
        llm = load_model(model, machine, context, status)
        if not raw and not llm.has_chat_template:
            raise ChatTemplateError(
                f"{llm.name} has no chat template: it was made to continue text, not to answer. "
                "Use --raw to let it continue the conversation as plain text, or choose a chat "
                "model (firstword models)"
            )
        _loop(Conversation(llm, params, system, raw), status, stats)


@dataclass
class Conversation:
    """The messages so far, kept within the context.

    Args:
        llm: answers.
        params: how.
        system: the instruction before everything, if any.
        raw: the turns are joined as plain text, without a template.
    """

    llm: LLM
    params: SamplingParams
    system: str | None = None
    raw: bool = False
    turns: list[dict[str, str]] = field(default_factory=list)

    def prompt(self) -> list[dict[str, str]] | str:
        """What the model is to answer now."""
        if self.raw:
            before = "" if self.system is None else f"{self.system}\n"
            return before + "".join(turn["content"] for turn in self.turns)
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*head, *self.turns]

    def make_room(self) -> int:
        """Drop the oldest turns until prompt and answer fit; returns how many were dropped.

        A prompt that does not fit even alone is left to the engine, which refuses it.
        """
        limit = self.llm.max_model_len
        # An answer may take up to half the context; otherwise a small one would hold no history.
        room = min(self.params.max_tokens or limit, limit // 2)
        dropped = 0
        while len(self.turns) > 1 and self.llm.count_tokens(self.prompt()) + room > limit:
            # A question leaves together with its answer, so that the roles go on alternating.
            count = 2 if len(self.turns) > 2 else 1
            del self.turns[:count]
            dropped += count
        return dropped

    def answer(self, text: str, status: StatusLine) -> RequestOutput | None:
        """Add a turn and write the answer; None when Ctrl-C ended it (the part stays)."""
        self.turns.append({"role": "user", "content": text})
        pieces: list[str] = []
        output = None
        try:
            dropped = self.make_room()
            if dropped:
                note(
                    f"[the context of {self.llm.max_model_len} tokens is full: the {dropped} "
                    "oldest messages were dropped]"
                )
            for delta in self.llm.stream(self.prompt(), self.params):
                status.clear()
                pieces.append(delta.text)
                write_answer(delta.text)
                output = delta.output or output
        except KeyboardInterrupt:
            note(" [stopped]")
        except FirstwordError:
            self.turns.pop()
            raise
        finally:
            status.clear()
        self.turns.append({"role": "assistant", "content": "".join(pieces)})
        return output


def _loop(conversation: Conversation, status: StatusLine, stats: bool) -> None:
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  line editing and history for input()

        note(f"{conversation.llm.name}: type a message, /help for commands, Ctrl-D to leave")
    while (line := _read_line(interactive)) is not None:
        if line.startswith("/"):
            if not _command(conversation, line):
                return
            continue
        if not line.strip():
            continue
        try:
            output = conversation.answer(line, status)
        except FirstwordError as error:
            note(f"firstword: error: {error}")
            continue
        write_answer("\n")
        if stats and output is not None:
            note_stats(output)


def _read_line(interactive: bool) -> str | None:
    """One message, or None at the end of the input."""
    lines: list[str] = []
    prompt = "> " if interactive else ""
    try:
        while True:
            line = input(prompt).removesuffix("\r")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
            prompt = "… " if interactive else ""
    except EOFError:
        if interactive:
            note("")
        return "\n".join(lines) if lines else None
    except KeyboardInterrupt:
        note("")
        return None


def _command(conversation: Conversation, line: str) -> bool:
    """Carry out a command; False to leave."""
    name, _, rest = line.partition(" ")
    match name:
        case "/quit" | "/exit" | "/bye":
            return False
        case "/reset":
            conversation.turns.clear()
            note("[the conversation is forgotten]")
        case "/system":
            conversation.system = rest.strip() or None
            conversation.turns.clear()
            note("[the instruction is set; the conversation begins anew]")
        case "/help":
            note(_HELP)
        case _:
            note(f"[there is no command {name}]\n{_HELP}")
    return True
