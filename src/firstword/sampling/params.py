"""What a request asks of sampling, checked: the public `SamplingParams`.

Not here: arrays, and what one logits row needs of these (batch.SamplingRow).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard, get_args

from firstword.errors import ConfigError

MAX_SAMPLES = 1024
MAX_LOGPROBS = 50
_MAX_SEED = 2**64 - 1

GrammarKind = Literal["json_schema", "json_object", "regex", "lark", "choice"]
PenaltyScope = Literal["output", "all"]

_GRAMMAR_WORDS: dict[str, str] = {
    "json_schema": "JSON schema",
    "json_object": "form of a JSON object",
    "regex": "regular expression",
    "lark": "grammar",
    "choice": "list of choices",
}

_PRESETS: dict[str, dict[str, float | int]] = {
    # Lively but not adrift: small chat models lose the thread when their long tail is sampled.
    "chat": {"temperature": 0.7, "top_k": 40, "top_p": 0.95},
    # The most probable token each time: the same answer each time.
    "factual": {"temperature": 0.0},
}


@dataclass(frozen=True)
class Grammar:
    """What an answer must look like.

    Args:
        kind: "json_schema" (text is the schema), "json_object" (any object; text is empty),
            "regex", "lark" (a grammar in llguidance's Lark dialect), "choice" (text is a JSON
            list of strings).
        text: see `kind`.
    """

    kind: GrammarKind
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(GrammarKind):
            kinds = ", ".join(get_args(GrammarKind))
            raise ConfigError(f"grammar kind is {self.kind!r}: it must be one of {kinds}")


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of a request are chosen, and when it ends.

    Args:
        n: samples wanted of the same prompt, 1 to 1024.
        temperature: 0 to 100; 0 is greedy (the largest logit); else logits are divided by it.
        top_k: choose among the k most probable tokens; 0 for all.
        top_p: choose among the most probable tokens that together have this probability, above 0
            and up to 1.
        seed: 0 to 2**64 - 1; None for one that the engine picks and reports.
        max_tokens: most tokens to produce, at least 1; None for the rest of the context.
        min_tokens: tokens before which nothing may end the output, at least 0.
        stop: strings that end the output; a single string is taken as one.
        stop_token_ids: token ids that end the output.
        ignore_eos: go on after the model's own end tokens.
        skip_special_tokens: leave control tokens out of the text.
        logprobs: most probable tokens to report at each step, 0 to 50; None for none.
        logit_bias: added to the logits, by token id, -100 to 100; -inf bans the token.
        presence_penalty: taken off the logit of each token that has occurred, -2 to 2.
        frequency_penalty: taken off the logit of a token as often as it has occurred, -2 to 2.
        repetition_penalty: divides the positive and multiplies the negative logits of tokens that
            have occurred, above 0 and up to 10; 1 for none.
        penalty_scope: "output" counts the tokens produced, "all" those of the prompt too.
        grammar: holds the output to a form; None for free text.

    Raises:
        ConfigError: a value is out of its range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    penalty_scope: PenaltyScope = "output"
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _check_whole("n", self.n, 1, MAX_SAMPLES)
        self._set("temperature", _checked_number("temperature", self.temperature, 0, 100))
        _check_whole("top_k", self.top_k, 0)
        self._set("top_p", _checked_top_p(self.top_p))
        if self.seed is not None:
            _check_whole("seed", self.seed, 0, _MAX_SEED)
        if self.logprobs is not None:
            _check_whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        self._check_length()
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: it must be True or False")
        self._set("stop", _checked_stop(self.stop))
        self._set("stop_token_ids", _checked_token_ids(self.stop_token_ids))
        self._set("logit_bias", _checked_bias(self.logit_bias))
        self._check_penalties()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the only way while a frozen value is being made

    def _check_length(self) -> None:
        _check_whole("min_tokens", self.min_tokens, 0)
        if self.max_tokens is None:
            return
        _check_whole("max_tokens", self.max_tokens, 1)
        if self.min_tokens > self.max_tokens:
            raise ConfigError(
                f"min_tokens is {self.min_tokens}, above max_tokens {self.max_tokens}: lower the "
                "first or raise the second"
            )

    def _check_penalties(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            self._set(name, _checked_number(name, getattr(self, name), -2, 2))
        penalty = self.repetition_penalty
        if not _is_number(penalty) or not 0 < penalty <= 10:
            raise ConfigError(
                f"repetition_penalty is {penalty!r}: it must be a number above 0 and at most 10"
            )
        self._set("repetition_penalty", float(penalty))
        if self.penalty_scope not in get_args(PenaltyScope):
            raise ConfigError(
                f"penalty_scope is {self.penalty_scope!r}: it must be 'output' or 'all'"
            )
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise ConfigError(f"grammar is {self.grammar!r}: it must be a Grammar or None")

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> SamplingParams:
        """The parameters of a named preset.

        Args:
            name: "chat" (temperature 0.7, top_k 40, top_p 0.95) or "factual" (temperature 0).
            overrides: parameters that differ from the preset.

        Raises:
            ConfigError: there is no such preset, or an override is out of its range.
        """
        if name not in _PRESETS:
            raise ConfigError(_unknown_preset(name))
        return cls(**{**_PRESETS[name], **overrides})

    @property
    def strategy(self) -> str:
        """The decoding strategy in words."""
        steps = []
        if self.logit_bias:
            tokens = "token" if len(self.logit_bias) == 1 else "tokens"
            steps.append(f"bias on {len(self.logit_bias)} {tokens}")
        steps += self._penalty_words()
        if self.temperature == 0:
            steps.append("greedy: the largest logit")
        else:
            steps.append(f"temperature {self.temperature:g}")
            if self.top_k:
                steps.append(f"top-k {self.top_k}")
            if self.top_p < 1:
                steps.append(f"top-p {self.top_p:g}")
        if self.grammar is not None:
            steps.insert(0, f"only what the {_GRAMMAR_WORDS[self.grammar.kind]} allows")
        return ", then ".join(steps)

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that have occurred count for less (or more)."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    def _penalty_words(self) -> list[str]:
        words = []
        if self.repetition_penalty != 1:
            words.append(f"repetition penalty {self.repetition_penalty:g}")
        if self.frequency_penalty:
            words.append(f"frequency penalty {self.frequency_penalty:g}")
        if self.presence_penalty:
            words.append(f"presence penalty {self.presence_penalty:g}")
        if words and self.penalty_scope == "all":
            words[-1] += " (the prompt counts)"
        return words

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids that a model does not have.

        Args:
            vocab_size: V; ids go from 0 to V - 1.

        Raises:
            ConfigError: an id of `stop_token_ids` or `logit_bias` is outside.
        """
        for name in ("stop_token_ids", "logit_bias"):
            for token_id in getattr(self, name):
                if token_id >= vocab_size:
                    raise ConfigError(
                        f"{name} has the token id {token_id}: this model's ids go from 0 to "
                        f"{vocab_size - 1}"
                    )


def _unknown_preset(name: str) -> str:
    from difflib import get_close_matches  # only when there is a mistake to explain

    close = get_close_matches(str(name).lower(), _PRESETS, n=1, cutoff=0.5)
    hint = f", did you mean {close[0]!r}?" if close else ":"
    return f"there is no preset {name!r}{hint} The presets are {', '.join(_PRESETS)}"


def _is_whole(value: object) -> TypeGuard[int]:
    # True is an int in Python, but hardly ever what was meant.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float) or _is_whole(value)


def _check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if not _is_whole(value) or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name} is {value!r}: it must be a whole number {limits}")


def _checked_number(name: str, value: object, low: float, high: float) -> float:
    if not _is_number(value) or not low <= value <= high:  # NaN is in no range
        raise ConfigError(f"{name} is {value!r}: it must be a number from {low:g} to {high:g}")
    return float(value)


def _checked_top_p(value: object) -> float:
    if not _is_number(value) or not 0 < value <= 1:
        raise ConfigError(f"top_p is {value!r}: it must be a number above 0 and at most 1")
    return float(value)


def _checked_stop(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else stop
    if not isinstance(strings, Iterable):
        raise ConfigError(f"stop is {stop!r}: it must be a string or a list of strings")
    strings = tuple(strings)
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ConfigError(
                f"stop holds {string!r}: each entry must be a string that is not empty"
            )
    return strings


def _checked_token_ids(ids: object) -> tuple[int, ...]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ConfigError(f"stop_token_ids is {ids!r}: it must be a list of token ids")
    ids = tuple(ids)
    for token_id in ids:
        _check_whole("an entry of stop_token_ids", token_id, 0)
    return ids


def _checked_bias(bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise ConfigError(f"logit_bias is {bias!r}: it must map token ids to numbers")
    checked = {}
    for token_id, value in bias.items():
        _check_whole("a token id of logit_bias", token_id, 0)
        if value != -math.inf:
            value = _checked_number(f"logit_bias of token {token_id}", value, -100, 100)
        checked[token_id] = value
    return checked
