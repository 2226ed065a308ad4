"""Holds answers to a JSON Schema, a regular expression, a grammar or a list of choices.

The work is llguidance's (https://github.com/guidance-ai/llguidance); here a grammar is checked,
so that nothing in it is dropped in silence, and compiled for one tokenizer. Not here: what a
schema may hold (json_schema), and sampling, which sees masks of token ids alone.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from firstword.errors import GrammarError, SamplingError
from firstword.sampling.params import Grammar
from firstword.text.json_schema import check_schema, escaped, subschemas
from firstword.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MAX_TEXT_BYTES = 262_144
"""Of a schema, expression, grammar or list of choices."""

MAX_CHOICES = 10_000

_CACHE_SIZE = 128
_MAX_TRIALS = 200  # schemas compiled to find the part at fault

JSON_OPTIONS: JsonCompileOptions = {
    # One space at most wherever JSON allows white space: what json.dumps writes. Small models that
    # may write any amount of it write nothing else.
    "whitespace_pattern": " ",
    # No \uXXXX: it would spell a declared property's name in a way that its schema does not see,
    # and lone surrogates. Whatever has no escape here is written as itself.
    "json_allowed_escapes": 'nrbtf\\"',
}


class GrammarCompiler:
    """Compiles grammars for the tokens of one model. Any threads may share it.

    Args:
        tokenizer: the model's own; it is read when the first grammar is compiled.
        vocab_size: V, the model's logits; None for as many as the tokenizer has.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._cache_lock, self._tokens_lock = Lock(), Lock()

    def check(self, grammar: Grammar) -> None:
        """Refuse a grammar that cannot be enforced whole.

        Raises:
            GrammarError: what is wrong and where; in a schema by JSON pointer.
        """
        self._start(grammar)

    def compile(self, grammar: Grammar) -> MatcherConstraint:
        """The state at the beginning of a grammar. Grammars used of late are kept.

        Raises:
            GrammarError: see `check`.
        """
        num_words = -(-self._vocab_size // 32)
        return MatcherConstraint(self._start(grammar).deep_copy(), num_words)

    def _start(self, grammar: Grammar) -> LLMatcher:
        with self._cache_lock:
            matcher = self._compiled.get(grammar)
            if matcher is not None:
                self._compiled.move_to_end(grammar)
                return matcher
        matcher = self._build(grammar)
        with self._cache_lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > _CACHE_SIZE:
                self._compiled.popitem(last=False)
        return matcher

    def _build(self, grammar: Grammar) -> LLMatcher:
        size = len(grammar.text.encode("utf-8", "surrogatepass"))
        if size > MAX_TEXT_BYTES:
            raise GrammarError(
                f"the {grammar.kind} has {size} bytes: {MAX_TEXT_BYTES} are allowed; shorten it"
            )
        try:
            matcher = self._matcher(grammar)
            is_empty = not (matcher.is_accepting() or any(matcher.compute_bitmask()))
        except ValueError as error:  # the library's, of input that is not even text
            if isinstance(error, GrammarError):
                raise
            raise GrammarError(f"the {grammar.kind} cannot be read: {_brief(str(error))}") from None
        if is_empty or matcher.is_error():
            raise GrammarError(
                f"no answer can match the {grammar.kind}: check it for parts that contradict each "
                "other or refer to themselves without an end"
            )
        return matcher

    def _matcher(self, grammar: Grammar) -> LLMatcher:
        library = _library()
        match grammar.kind:
            case "json_schema":
                return self._of_schema(_parsed(grammar.text))
            case "json_object":
                if grammar.text:
                    raise GrammarError("json_object takes no text: use json_schema for a schema")
                return self._of_schema({"type": "object"})
            case "regex":
                return self._of_source(library.grammar_from_regex(grammar.text), "regex")
            case "choice":
                return self._of_source(library.grammar_from_regex(_choices(grammar.text)), "choice")
        return self._of_source(library.grammar_from_lark(_checked_lark(grammar.text)), "grammar")

    def _of_source(self, source: str, kind: str) -> LLMatcher:
        matcher = _library()(self._tokens, source, log_level=0)
        if matcher.is_error():
            raise GrammarError(f"the {kind} cannot be enforced: {_brief(matcher.get_error())}")
        return matcher

    def _of_schema(self, schema: object) -> LLMatcher:
        check_schema(schema)
        root = schema if isinstance(schema, dict) else {}  # true: any value
        matcher = self._schema_matcher(root)
        if matcher.is_error():
            pointer = _Culprit(root, lambda part: not self._schema_matcher(part).is_error()).find()
            raise GrammarError(f"cannot be enforced: {_brief(matcher.get_error())}", pointer)
        return matcher

    def _schema_matcher(self, schema: Mapping[str, object]) -> LLMatcher:
        library = _library()
        source = library.grammar_from_json_schema(json.dumps(schema), overrides=JSON_OPTIONS)
        return library(self._tokens, source, log_level=0)

    @property
    def _tokens(self) -> LLTokenizer:
        with self._tokens_lock:  # made once, by whoever comes first
            return self._library_tokens

    @cached_property
    def _library_tokens(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        vocabulary = _Vocabulary(self._tokenizer)
        ends = sorted(self._tokenizer.eos_ids)
        if not ends:
            raise GrammarError(
                "this model has no end token, so that an answer held to a grammar could not end"
            )
        # Typed as the library's own wrapper, whose attributes it has.
        return LLTokenizer(
            vocabulary,  # type: ignore[arg-type]
            eos_token=ends,
        )


class MatcherConstraint:
    """The state of one sequence in a compiled grammar: a `sampling.constraint.TokenConstraint`.

    Args:
        matcher: its own.
        num_words: ceil(V / 32); the library's masks are as long as the tokenizer's vocabulary.
    """

    def __init__(self, matcher: LLMatcher, num_words: int) -> None:
        self._matcher, self._num_words = matcher, num_words

    def mask(self) -> NDArray[np.uint32]:
        """The tokens that may come next: see `TokenConstraint`."""
        found = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: self._num_words]
        if self._matcher.is_error():
            self._fail()
        words = np.zeros(self._num_words, np.uint32)
        words[: len(found)] = found
        return words

    def accept(self, token_id: int) -> None:
        """Take in the token that came: see `TokenConstraint`."""
        if not self._matcher.consume_token(token_id):
            self._fail()

    @property
    def is_done(self) -> bool:
        """Whether nothing but the end is possible, or the end has come."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def fork(self) -> MatcherConstraint:
        """A state of its own that goes on from here."""
        return MatcherConstraint(self._matcher.deep_copy(), self._num_words)

    def _fail(self) -> NoReturn:
        raise SamplingError(
            f"the answer's grammar cannot go on: {_brief(self._matcher.get_error())}: "
            "simplify the grammar"
        )


class _Vocabulary:
    """What the library reads of a tokenizer, as its TokenizerWrapper has it."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self.tokens = [tokenizer.token_bytes(i, skip_special=False) for i in ids]
        self.special_token_ids = [i for i in ids if tokenizer.is_control(i)]
        self.eos_token_id = min(tokenizer.eos_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        self._encode = tokenizer.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


class _Culprit:
    """Finds the part of a schema for which the library refuses the whole.

    Args:
        root: the schema.
        compiles: whether a schema is accepted.
    """

    def __init__(
        self, root: Mapping[str, object], compiles: Callable[[Mapping[str, object]], bool]
    ) -> None:
        self._root, self._compiles = root, compiles
        self._shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
        self._num_trials = 0

    def find(self) -> str:
        """A JSON pointer; "" where no smaller part is at fault."""
        return self._within(self._root, "")

    def _within(self, schema: Mapping[str, object], pointer: str) -> str:
        for place, part in subschemas(schema, pointer):
            if isinstance(part, dict) and self._fails({**self._shared, **part}):
                return self._within(part, place)
        for keyword in schema:
            rest = {name: value for name, value in schema.items() if name != keyword}
            if not self._fails({**self._shared, **rest}):
                return f"{pointer}/{escaped(keyword)}"
        return pointer

    def _fails(self, schema: Mapping[str, object]) -> bool:
        self._num_trials += 1
        return self._num_trials <= _MAX_TRIALS and not self._compiles(schema)


def _library() -> type[LLMatcher]:
    try:
        from llguidance import LLMatcher
    except ImportError:
        raise GrammarError(
            "answers are held to grammars by llguidance, which is not installed: pip install "
            "'firstword[server]'"
        ) from None
    return LLMatcher


def _parsed(text: str) -> object:
    """JSON as strict as its standard."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise GrammarError("the JSON is nested too deeply: flatten it") from None
    except ValueError as error:
        raise GrammarError(f"not valid JSON: {error}") from None


def _choices(text: str) -> str:
    """A regular expression for a JSON list of strings."""
    choices = _parsed(text)
    if not isinstance(choices, list) or not all(isinstance(c, str) and c for c in choices):
        raise GrammarError("choices must be a JSON list of strings that are not empty")
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise GrammarError(f"{len(choices)} choices: give 1 to {MAX_CHOICES}")
    return "|".join(re.sub(r"([\\.+*?()|\[\]{}^$#&~/-])", r"\\\1", choice) for choice in choices)


_LARK_ATOM = re.compile(
    r"""%json\s*
    | "(?:\\.|[^"\\\n])*"      # a string
    | /(?:\\.|[^/\\])+/        # a regular expression
    | <[^<>\s]+>               # a special token
    | (?:\#|//)[^\n]*          # a comment
    """,
    re.VERBOSE,
)
"""What llguidance's lexer takes whole, whatever is in it, and the word before a schema."""


def _checked_lark(text: str) -> str:
    """A grammar whose JSON schemas are checked and written as `JSON_OPTIONS` says."""
    pieces: list[str] = []
    outside: list[str] = []  # of schemas, strings, expressions, special tokens and comments
    done = 0
    while found := _LARK_ATOM.search(text, done):
        outside.append(text[done : found.start()])
        pieces.append(text[done : found.end()])
        done = found.end()
        if found[0].startswith("%json"):
            schema, done = _embedded_schema(text, done)
            pieces.append(json.dumps({"x-guidance": JSON_OPTIONS, **schema}))
    outside.append(text[done:])
    if re.search(r"\btemperature\s*=", " ".join(outside)):
        raise GrammarError(
            "temperature inside a grammar cannot be applied: give it as a parameter of sampling"
        )
    return "".join(pieces) + text[done:]


def _embedded_schema(text: str, start: int) -> tuple[dict[str, object], int]:
    """The schema that begins at `start` of a grammar, checked, and where it ends."""
    try:
        schema, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the schema after %json is not valid JSON: {error}") from None
    check_schema(schema)
    return schema if isinstance(schema, dict) else {}, end


def _brief(message: str) -> str:
    """The library's message in one line, without the source that it quotes."""
    first = re.split(r"\n\s*\d+ \|", message)[0]
    return " ".join(first.split())[:300]
