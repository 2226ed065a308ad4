"""Prompts of every kind to the token ids that the engine reads.

Not here: what a chat template writes (text.chat_template), and what is made of the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from firstword.errors import ChatTemplateError, ConfigError
from firstword.text.chat_template import ChatTemplate
from firstword.text.tokenizer import Tokenizer

Message = Mapping[str, object]
Prompt = str | Sequence[int] | Sequence[Message]
"""Raw text, token ids, or the messages of a chat."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as token ids.

    Args:
        token_ids: all of them.
        text: the prompt as text, template included; None when it came as token ids.
        num_typed_tokens: tokens of what the user typed; the rest were added by the template or
            by the model's rule for the beginning of a text.
        is_chat: it ends where an answer begins, rather than in the middle of a text.
        seconds: time it took.
    """

    token_ids: tuple[int, ...]
    text: str | None
    num_typed_tokens: int
    is_chat: bool = False
    seconds: float = 0.0


class PromptEncoder:
    """Encodes prompts for one model; any thread may use it.

    Args:
        tokenizer: the model's own.
        name: the model's name, for messages.
        clock: seconds, monotonic.

    Attributes:
        template: the model's chat template, None when it has none.
    """

    def __init__(
        self, tokenizer: Tokenizer, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tokenizer, self.name, self._clock = tokenizer, name, clock
        has_template = tokenizer.chat_template is not None
        self.template = ChatTemplate.of(tokenizer) if has_template else None

    def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        """Token ids of a prompt.

        Args:
            prompt: text, token ids or messages.
            variables: further variables of the chat template, such as `tools`; messages only.

        Raises:
            ConfigError: an empty prompt or one of another type.
            ChatTemplateError: messages for a model without a chat template, or refused by it.
        """
        start = self._clock()
        if isinstance(prompt, str):
            encoded = self._encode_text(prompt)
        else:
            ids = tuple(item for item in prompt if isinstance(item, int))
            messages = [dict(item) for item in prompt if isinstance(item, Mapping)]
            if ids and len(ids) == len(prompt):
                encoded = EncodedPrompt(ids, None, len(ids))
            elif messages and len(messages) == len(prompt):
                encoded = self._encode_chat(messages, variables)
            else:
                raise ConfigError(
                    "the prompt is empty or mixed: give text, token ids, or a list of messages "
                    "with 'role' and 'content'"
                )
        return replace(encoded, seconds=self._clock() - start)

    def _encode_text(self, text: str) -> EncodedPrompt:
        ids = self.tokenizer.encode(text, parse_special=True)
        bos = self.tokenizer.bos_ids
        # A text that already begins with it gets no second one.
        if bos and ids[: len(bos)] == bos:
            bos = []
        return EncodedPrompt(tuple([*bos, *ids]), text, len(ids))

    def _encode_chat(
        self, messages: list[dict[str, object]], variables: Mapping[str, object]
    ) -> EncodedPrompt:
        if self.template is None:
            raise ChatTemplateError(
                f"{self.name} has no chat template: it was made to continue text, not to answer. "
                "Use --raw (in Python: generate() with a plain string) or choose a chat model"
            )
        chat = self.template.encode(self.tokenizer, messages, **variables)  # type: ignore[arg-type]
        return EncodedPrompt(tuple(chat.token_ids), chat.text, chat.num_typed_tokens, is_chat=True)
